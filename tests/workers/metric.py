"""A command to be measured: ranks meet at MASTER_PORT, and rank 0 says how many CPUs it has."""

import json
import os
import socket
import time

if os.environ["RANK"] == "0":
    with socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))) as server:
        server.accept()[0].close()
    print("not JSON")
    print(json.dumps({"speed": 1.0}))
    print(json.dumps({"speed": 10.0 * len(os.sched_getaffinity(0)), "more": "words"}))
else:
    for _ in range(500):  # rank 0 may start later
        try:
            socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
