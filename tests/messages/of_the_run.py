"""The errors of a launch that is about to begin, or has begun."""

from tests.messages.row import HERE, Row

L = f"$ {HERE} --quiet"
PLANT = "mkdir s; chmod 1777 s; ln -s no s/0; chown -h 1234 s/0"
NODES = f"{L} --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:$PORT"
MEET = f"{L} --node-rank 0 --rdzv-endpoint 127.0.0.1:$PORT --rdzv-conf last_call_timeout=1"
SERVE = "python -m http.server $PORT >/dev/null 2>&1 & server=$!; until (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null; do sleep 0.05; done; trap 'kill $server' EXIT"
ON_A_TERMINAL = f"$ script -qec '{HERE} --nproc 2 --debug 1 x.py' /dev/null"

ROWS = [
    Row(f"{NODES} --token-file none x.py", "--token-file none", "No such file or directory", "> none makes one", f"{L} --token-file none x.py"),
    Row(f"{NODES} x.py", "SPAWNLAUNCH_TOKEN_FILE is empty", "no secret would be asked for", "unset SPAWNLAUNCH_TOKEN_FILE", f"{L} x.py", {"SPAWNLAUNCH_TOKEN_FILE": ""}),
    Row(f"{NODES} x.py", "SPAWNLAUNCH_TOKEN has 3 bytes", "must have 16 to 4096", "base64 makes one", f"{L} x.py", {"SPAWNLAUNCH_TOKEN": "abc"}),
    Row(f"{NODES} --rdzv-backend c10d --rdzv-conf is_host=1 x.py", "the launchers cannot meet at 127.0.0.1:", "Address already in use", "use --rdzv-endpoint HOST:PORT", f"{L} x.py", prepare=SERVE),
    Row(f"{NODES.replace('127.0.0.1', '192.0.2.1')} x.py", "the launchers cannot meet at 192.0.2.1:", "Cannot assign requested address; this machine is to have the hub", "if another launcher has node rank 0, use another --node-rank here; else use --rdzv-endpoint HOST:PORT", f"{L} x.py"),
    Row(f"{L} --result no/r.json x.py", "--result no/r.json", "no directory", "make it, or name another", f"{L} --result no/r.json x.py", mend="mkdir no"),
    Row(f"{L} --record x.py/r x.py", "--record x.py/r", "Not a directory", "name a directory that can be written", f"{L} --record r x.py"),
    Row(f"{L} --record r --no-python sh -c 'until grep -qs attempt r/*; do sleep 0.1; done; kill -9 $(pgrep -P $(ps -o ppid= $PPID) -f import.record); sleep 1'", "the record broke off", "its process", "shows it so far", f"$ {HERE}.report r", status=0),
    Row(f"{L} --result r.json $OLDPWD/x.py", "--result r.json", "deleted", "run cd DIR first", f"{L} --result r.json x.py", prepare="mkdir gone; cd gone; rmdir ../gone"),
    Row(f"{L} --log-dir /dev/null/l x.py", "/dev/null/l", "Not a directory", "--log-dir", f"{L} --log-dir l x.py"),
    Row(f"{L} --log-dir l/{{rank}} x.py", "cannot write to", "Is a directory", "remove it", f"{L} --log-dir l/{{rank}} x.py", prepare="mkdir -p l/0/stdout.log", mend="rmdir l/0/stdout.log"),
    Row(f"{L} --log-dir l/{{rank}} x.py", "cannot remove", "Is a directory", "remove it yourself", f"{L} --log-dir l/{{rank}} x.py", prepare="mkdir -p l/0/error.json", mend="rmdir l/0/error.json"),
    Row(f"{L} --log-dir s/0 x.py", "cannot make the directory", "/s/0 is a link of another user's (uid 1234), where everybody may write", "name another directory with --log-dir", f"{L} --log-dir s/1 x.py", prepare=PLANT),
    Row(f"{L} --result s/0 x.py", "--result s/0", "/s/0 is a link of another user's (uid 1234)", "name another", f"{L} --result s/1 x.py", prepare=PLANT),
    Row(f"{L} x.py", "TORCHELASTIC_ERROR_FILE=s/0", "/s/0 is a link of another user's (uid 1234)", "name another", f"{L} x.py", {"TORCHELASTIC_ERROR_FILE": "s/0"}, prepare=PLANT, mend="export TORCHELASTIC_ERROR_FILE=s/1"),
    Row(f"{L} x.py", "cannot make the directory", "No such file or directory", "set TMPDIR to a place that can be written", f"{L} x.py", {"TMPDIR": "none"}, mend="export TMPDIR=/tmp"),
    Row(f"{L} --nproc 2 --preload no_such x.py", "--preload no_such", "cannot be imported", "leave it out", f"{L} --nproc 2 x.py"),
    Row(f"{L} --nproc 2 --preload threading_one x.py", "--preload threading_one", "workers cannot be forked from here", "leave the module out", f"{L} --nproc 2 x.py", {"PYTHONPATH": "."}, prepare="printf 'import threading, time\\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\\n' >threading_one.py"),
    Row(f"$ python -m tests.support.refusing getppid {HERE} --quiet x.py", "the system refuses getppid", "Operation not permitted", "docker run --security-opt seccomp=unconfined", f"{L} x.py", status=71),
    Row(f"$ unshare --mount sh -c 'mount -t tmpfs none /dev && exec {HERE} --quiet x.py >&-'", "stdout is closed", "there is no /dev/null to have instead: No such file or directory", "use 1>FILE", f"$ unshare --mount sh -c 'mount -t tmpfs none /dev && exec {HERE} --quiet x.py 1>FILE'"),
    Row("$ " + HERE + " --version >&-", "cannot write to stdout", "it is closed", "name a file that can be written", "$ " + HERE + " --version >FILE", status=74),
    Row("$ " + HERE + " --version >/dev/full", "cannot write to stdout", "No space left on device", "name a file that can be written", "$ " + HERE + " --version >FILE", status=74),
    Row(f"{L} --nproc 20 --no-python true", "20 workers need 92 open files", "64 are allowed", "use --nproc 10, or raise the limit: ulimit -n 92", f"{L} --nproc 20 --no-python true && ulimit -n 64 && {HERE} --nproc 10 --no-python true", prepare="ulimit -n 64", mend="ulimit -n 92"),
    Row(f"{MEET} --nnodes 1:40 --no-python true", "the launcher at which 40 nodes meet needs 85 open files", "64 are allowed", "use fewer --nnodes, or raise the limit: ulimit -n 85", f"{MEET} --nnodes 1:40 --no-python true && ulimit -n 64 && {MEET[2:]} --nnodes 1:19 --no-python true", prepare="ulimit -n 64", mend="ulimit -n 85"),
    Row(f"{L} --no-python ./text", "cannot start './text'", "Exec format error", "check the program and its permissions", f"{L} --no-python ./text", prepare="echo hello >text; chmod +x text", mend="printf '#!/bin/sh\\n' >text", status=126),
    Row(f"{L} --result d/r.json --no-python rmdir d", "cannot write --result", "No such file or directory", "name another file", f"{L} --result r.json x.py", prepare="mkdir d", status=74),
    Row(f"{L} --no-python false", "cannot write TORCHELASTIC_ERROR_FILE", "No such file or directory", "name another file", f"{L} x.py", {"TORCHELASTIC_ERROR_FILE": "no/e.json"}, mend="export TORCHELASTIC_ERROR_FILE=e.json", status=1),
    Row(f"{L} --max-restarts 1 --log-dir 'l{{restart}}' --no-python sh -c '> l1; exit 1'", "cannot restart", "Not a directory", "--log-dir", f"{L} x.py", status=1),
    Row(f"{L} --hang-timeout 1 --on-hang kill --log-dir l/{{rank}} --no-python sleep 60", "cannot write to stacks.log", "Is a directory", "name another directory with --log-dir; the stacks stand here", f"{L} --hang-timeout 600 --log-dir m/{{rank}} x.py", prepare="mkdir -p l/0/stacks.log", status=124),
    Row(f"{L} --nproc 2 --debug 2 x.py", "--debug 2", "there is no such rank", "use one of 0-1", ON_A_TERMINAL),
    Row(f"{L} --nproc 2 --debug 1 x.py </dev/null", "--debug 1", "stdin is not a terminal", "start it in a terminal", ON_A_TERMINAL),
]  # fmt: skip
