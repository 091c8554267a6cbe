"""Files that name the hosts of a job, one slot or host a line, the name first."""


def unique_hosts(path: str) -> tuple[str, ...]:
    """The hosts in the order of their first line; none where there is no such file.

    >>> unique_hosts("/no/such/file")
    ()
    """
    if not path:
        return ()
    try:
        with open(path, errors="replace") as file:
            names = [line.split()[0] for line in file if line.strip()]
    except OSError:
        return ()
    return tuple(dict.fromkeys(names))
