"""Warn about scripts written for torch.distributed.launch, which expect --local-rank=N."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spawnlaunch.cli import flags

# add_argument("--local_rank", ...), also as the second of two names, but not tyro, click or absl.
DECLARED = re.compile(r"""(?:add_argument|option)\([^()]{0,80}?["'](--local[-_]rank)["']""")
MEANT = ("--local-rank", "--use-env")  # a command line with one of these flags needs no warning
FROM_ENVIRONMENT = "LOCAL_RANK"  # a script that reads this needs no argument


def advice(request: flags.Request, text: str) -> Iterator[str]:
    """Yield a warning about a script of this text that declares the argument and is given none.

    Or is given one in another spelling, which is unknown to its argparse.
    """
    names, given = DECLARED.findall(text), request.local_rank_arg
    if not names:
        return
    name, kind = names[0], "underscore" if "_" in names[0] else "hyphen"
    if given and given not in names:
        yield (
            f"warning: {request.program.target} declares {name}, and is given {given}=N; use "
            f"--local-rank-arg {kind}"
        )
    words = (*request.program.args, *request.flags)
    is_meant = any(word.replace("_", "-").startswith(MEANT) for word in words)
    if is_meant or FROM_ENVIRONMENT in text:
        return
    yield (
        f"warning: {request.program.target} declares {name} and does not read LOCAL_RANK, so all "
        f"ranks may take the first device; to give it {name}=N, use --local-rank-arg {kind}"
    )
