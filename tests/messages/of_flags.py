"""The errors of the command line."""

from tests.messages.row import HERE, STEP, Row

CLI = [
    Row("--no-python --preload re true", "--preload", "--no-python is not", "leave one", "--no-python true"),
    Row("--preload re x.py", "PYTHON_EXEC asks for /bin/other", "--preload forks", "leave one of them out", "x.py", {"PYTHON_EXEC": "/bin/other"}),
    Row("--local-rank-arg hyphen", "--local-rank-arg", "reads LOCAL_RANK", "name a script", "--local-rank-arg hyphen x.py"),
    Row("--redirects 3 x.py", "--redirects", "needs a place", "type --log-dir DIR", "--redirects 3 --log-dir DIR x.py"),
    Row("$ " + HERE + " --allowed-cpus 0 x.py", "--allowed-cpus", "are for looking", "type --explain", "--allowed-cpus 0 x.py"),
    Row("--sysfs-root none x.py", "--sysfs-root 'none'", "is no directory", "type one that has sys and proc", "--sysfs-root two x.py"),
    Row("--nproc", "--nproc", "needs a value", "--help shows which", f"$ {HERE} --help"),
    Row("-m --no-python x", "-m and --no-python", "exclude each other", "leave one out", "-m json.tool"),
    Row("no.py", "script 'no.py'", "not found", "-m no.py for a module, --no-python no.py for a program", "--no-python no.py", mend="printf '#!/bin/sh' >no.py; chmod +x no.py; PATH=.:$PATH"),
    Row("-m", "-m", "needs a module", "-m package.module", "-m package.module"),
    Row("--no-python", "--no-python", "needs a program", "--no-python ./program", "--no-python ./program", mend="cp /bin/true program"),
    Row("--no-python ./x.py", "program './x.py'", "is not an executable file", "check the name and its x permission", "--no-python ./x.py", mend="chmod +x x.py"),
    Row("--no-python no-such", "program 'no-such'", "is not on PATH", "check the name", "--no-python true"),
    Row("--log-dir 'a{b}' x.py", "--log-dir a{b}", "not a template", "write {{ for a {", "--log-dir 'a{{b' x.py"),
    Row("--nproc 2 --log-dir '{host}' x.py", "--log-dir {host}", "gives several ranks the same directory", "put {rank} into it", "--nproc 2 --log-dir '{host}{rank}' x.py"),
    Row("--nproc 2 --ranks-filter 2 x.py", "--ranks-filter 2", "there is no such rank", "type some of 0-1", "--nproc 2 --ranks-filter 0-1 x.py"),
    Row("--nproc 2 --local-ranks-filter 3 x.py", "--local-ranks-filter 3", "there is no such rank", "type some of 0-1", "--nproc 2 --local-ranks-filter 0-1 x.py"),
]  # fmt: skip
STRANGE = [
    Row("--nprocs 2 x.py", "--nprocs", "unknown flag", "did you mean --nproc? type python -m spawnlaunch --explain --nproc 2 x.py", "--nproc 2 x.py"),
    Row("-n 2 x.py", "-n", "which is --nproc here", "type python -m spawnlaunch --explain --nproc 2 x.py", "--nproc 2 x.py"),
    Row("--use_env x.py", "--use_env", "means nothing here", "leave it out: type python -m spawnlaunch --explain x.py", "x.py"),
    Row("-x FOO=1 x.py", "-x", "inherit the environment", "type FOO=1 python -m spawnlaunch --explain x.py", "$ FOO=1 python -m spawnlaunch --explain x.py"),
    Row("--hostfile hosts x.py", "--hostfile", "on this machine only", "type mpirun --hostfile hosts python -m spawnlaunch --explain x.py", "$ mpirun --allow-run-as-root --hostfile hosts python -m spawnlaunch --explain x.py"),
    Row("--lr 1 x.py", "--lr", "unknown flag", "go behind it: type python -m spawnlaunch --explain x.py --lr 1", "x.py --lr 1"),
    Row("--steps 1", "--steps", "unknown flag", "go after a --: type python -m spawnlaunch --explain -- --steps 1", "-- --steps 1"),
]  # fmt: skip
VALUES = [
    Row("--nproc many x.py", "--nproc: 'many'", "is not a number of workers", "type --nproc 2", "--nproc 2 x.py"),
    Row("--nproc 1000000000 x.py", "1000000000 workers", "more than the 32768 processes", "type --nproc 2", "--nproc auto x.py"),
    Row("--max-restarts -1 x.py", "--max-restarts: '-1'", "is not a whole number", "type a number from 0", "--max-restarts 0 x.py"),
    Row("--threads 0 x.py", "--threads: '0'", "is not a number above 0", "type a number from 1", "--threads 1 x.py"),
    Row("--master-port 65536 x.py", "--master-port: '65536'", "is not a port", "type a number from 1 to 65535", "--master-port $PORT x.py"),
    Row("--nnodes 1:2 x.py", "--nnodes: '1:2'", "which there is not", "type one number", "--nnodes 1 x.py"),
    Row("--rdzv-endpoint :5 x.py", "':5'", "names no host", "type HOST:PORT", "--standalone --rdzv-endpoint localhost:$PORT x.py"),
    Row("--rdzv-endpoint a:b:5 x.py", "'a:b:5'", "has several colons", "type [a:b:5] or [HOST]:PORT", "--rdzv-endpoint [::1]:$PORT x.py"),
    Row("--rdzv-backend etcd x.py", "'etcd'", "is not served", "type static or c10d", "--rdzv-backend c10d x.py"),
    Row("--grace soon x.py", "'soon'", "is not a time in seconds", "type a number, as 30 or 2.5", "--grace 2.5 x.py"),
    Row("--ranks-filter one x.py", "'one'", "is no list of ranks", "type numbers: 0,4-7", "--nproc 8 --oversubscribe --ranks-filter 0,4-7 x.py"),
    Row("--no-restart-status 256 x.py", "'256'", "is no list of exit statuses", "type numbers to 255: 2,75", "--no-restart-status 2,75 x.py"),
    Row("--preload a-b x.py", "'a-b'", "is no module", "type names such as torch,numpy", "--preload re,json x.py"),
    Row("--tee 4 x.py", "'4'", "is not a choice of streams", "type 1 for stdout, 2 for stderr, 3 for both", "--tee 3 x.py"),
    Row("--bind sideways x.py", "'sideways'", "is no way to bind", "choose one of auto, node", "--bind auto x.py"),
    Row("--bind 1-0 x.py", "'1-0'", "is not a CPU or a range", "a list looks like 0-3,8", "--sysfs-root two --bind 0-3 x.py"),
    Row("--bind 0xgg x.py", "'0xgg'", "is not a CPU mask", "looks like 0xff00", "--sysfs-root two --bind 0xff x.py"),
    Row("--reserve-cpus x x.py", "'x'", "is not a CPU", "or type first-per-l3", "--reserve-cpus first-per-l3 x.py"),
    Row("--allowed-cpus x x.py", "'x'", "is not a CPU", "looks like 0-3,8", "--allowed-cpus 0-3,8 x.py"),
    Row("--smt maybe x.py", "--smt", "invalid choice: 'maybe'", "choose from 'on', 'off'", "--smt off x.py"),
    Row("--on-hang x x.py", "--on-hang", "invalid choice: 'x'", "choose from 'dump', 'kill'", "--on-hang kill x.py"),
    Row("--explain=x x.py", "--explain", "invalid choice: 'x'", "choose from 'text', 'json'", "--explain=json x.py"),
    Row("--mem-bind x x.py", "--mem-bind", "invalid choice: 'x'", "'preferred'", "--mem-bind preferred x.py"),
    Row("--local-rank-arg x x.py", "--local-rank-arg", "invalid choice: 'x'", "'hyphen'", "--local-rank-arg hyphen x.py"),
    Row("--quiet=yes x.py", "--quiet=yes", "takes no value", "type --quiet", "--quiet x.py"),
    Row("--bind -- x.py", "--bind", "-- is none", "--help shows which", f"$ {HERE} --help"),
]  # fmt: skip
PLACING = [
    Row("--sysfs-root two --nproc 4 x.py", "--nproc 4", "2 visible devices", "type --nproc 2, or --oversubscribe", "--sysfs-root two --nproc 2 x.py"),
    Row("--sysfs-root two --nproc 4 x.py", "--nproc 4", "2 visible devices", "or --oversubscribe", "--sysfs-root two --nproc 4 --oversubscribe x.py"),
    Row("--nproc gpu x.py", "--nproc gpu", "no GPU is visible here", "--nproc cpu", "--nproc cpu x.py"),
    Row("--sysfs-root two --nproc 2 --bind 0-1 x.py", "--bind lists CPUs for 1 local ranks", "there is a rank 1", "give one list for each, separated by colons", "--sysfs-root two --nproc 2 --bind 0-1:2-3 x.py"),
    Row("--sysfs-root two --bind 40 x.py", "the CPUs '40'", "allowed are 0-7", "choose among these", "--sysfs-root two --bind 0-7 x.py"),
]  # fmt: skip
TASKS = [
    Row("--tee 3 --log-dir l x.py", "--tee", "needs a launcher that stays above", "--ntasks-per-node=1", "--nproc 2 --tee 3 --log-dir l x.py", STEP, mend="export SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_STEP_NUM_TASKS=2"),
    Row("--log-dir l x.py", "--log-dir", "in task mode there is none", "type --redirects 3 as well", "--redirects 3 --log-dir l x.py", STEP),
    Row("--nnodes 2 --node-rank 1 --master-addr h --max-restarts 1 x.py", "--max-restarts", "has 2 nodes", "leave it out", "--nnodes 2 --node-rank 1 --master-addr h x.py"),
]  # fmt: skip
ROWS = [*CLI, *STRANGE, *VALUES, *PLACING, *TASKS]
