"""Jobs that give a list of hosts, and a process on the first: PBS, Grid Engine, LSF, OAR."""

from __future__ import annotations

import os
from shlex import quote

from spawnlaunch.base import reading
from spawnlaunch.cli import values
from spawnlaunch.world import identity


class HostList(identity.Manager):
    """A process on a host of a job. A shell of the job starts launchers on the others by pdsh."""

    kind = identity.HOSTS
    lists: tuple[str, ...] = ()  # variables with hosts, or with the path of a file of hosts
    remote_shell = "-R ssh -w {hosts}"  # options of pdsh; a program that it runs for each host %h

    def is_present(self) -> bool:
        return super().is_present() and any(map(self.environ.get, self.lists))

    def why_silent(self, question: str) -> str:
        return f"no list of hosts ({', '.join(self.lists)}) can be read here"

    def hosts(self) -> identity.Fact | None:
        """The hosts of the first readable list; each list has all hosts."""
        return next(filter(None, map(self._hosts_in, self.lists)), None)

    def _hosts_in(self, name: str) -> identity.Fact | None:
        """The hosts of the file that a variable names: the first word of each line, each once."""
        path = self.environ.get(name)
        lines = (reading.file_text(path) or "").splitlines() if path else []
        hosts = tuple(dict.fromkeys(line.split()[0] for line in lines if line.strip()))
        return identity.Fact(hosts, name) if hosts else None

    def launcher_flags(self) -> tuple[str, ...]:
        """The flags of launchers that the job's variables do not reach, as ssh hands none on."""
        job, hosts = self.job(), self.hosts()
        if not job or not hosts:
            return ()
        at = f"--rdzv-endpoint={hosts.value[0]}:{values.ENDPOINT_PORT}"
        return f"--nnodes={len(hosts.value)}", f"--rdzv-id={job.value}", at

    def start_line(self, command: str, n: int) -> str:
        hosts = self.hosts()
        where = self.remote_shell.format(hosts=",".join(hosts.value) if hosts else "HOSTS")
        return f"pdsh -S {where} {quote(f'cd {quote(os.getcwd())} && {command}')}"


class Pbs(HostList):
    """A process on a host of a PBS job, without an MPI.

        PBS_JOBID=123.server  PBS_NODEFILE=/var/spool/pbs/aux/123.server: a line per slot

    Its pbsdsh is not the same everywhere: -u, once on each host, is TORQUE's alone.
    Source: qsub(1B), "Environment Variables"; pbsdsh(1B).
    """

    name = "PBS"
    needs = ("PBS_JOBID", "PBS_NODEFILE")
    lists = ("PBS_NODEFILE",)
    job_from = ("PBS_JOBID",)


class GridEngine(HostList):
    """A process on a host of a Grid Engine job.

        JOB_ID=77  NSLOTS=8  NHOSTS=2  PE_HOSTFILE=/path: "host slots queue processors" a line
        SGE_TASK_ID=3, or undefined where the job is no array

    NSLOTS counts slots, which a site may mean as cores or as anything else: it is never a world
    size. Without a parallel environment there is no PE_HOSTFILE, and the job has one host.
    Source: qsub(1), "Environmental variables" and -inherit; sge_pe(5), "$pe_hostfile".
    """

    name = "Grid Engine"
    needs = ("JOB_ID", "NSLOTS")
    lists = ("PE_HOSTFILE",)
    nnodes_from = ("NHOSTS",)
    remote_shell = "-R exec -w {hosts} qrsh -inherit %h"

    def is_present(self) -> bool:
        return all(map(self.environ.get, self.needs))

    def nnodes(self) -> identity.Fact | None:
        single = identity.Fact(1, "no parallel environment (PE_HOSTFILE)")
        return super().nnodes() or (None if self.environ.get("PE_HOSTFILE") else single)

    def job(self) -> identity.Fact | None:
        """The job's number, with the task's in an array: all tasks of an array share JOB_ID."""
        job, task = self.environ["JOB_ID"], self.environ.get("SGE_TASK_ID", "")
        if task in ("", "undefined"):
            return identity.Fact(job, "JOB_ID")
        return identity.Fact(f"{job}.{task}", "JOB_ID.SGE_TASK_ID")


class Lsf(HostList):
    """A process on a host of an LSF job. blaunch hands all variables on to the other hosts.

        LSB_JOBID=8  LSB_JOBINDEX=0 (of an array: from 1)
        LSB_HOSTS="h1 h1 h2 h2" (not where it would be too long)  LSB_MCPU_HOSTS="h1 2 h2 2"
        LSB_DJOB_HOSTFILE=/path: a host per slot  LSB_DJOB_RANKFILE=/path: a host per slot

    Source: IBM Spectrum LSF's reference of environment variables; blaunch(8).
    """

    name = "LSF"
    needs = ("LSB_JOBID",)
    lists = ("LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_DJOB_RANKFILE")

    def _hosts_in(self, name: str) -> identity.Fact | None:
        if name.endswith("FILE"):
            return super()._hosts_in(name)
        words = self.environ.get(name, "").split()[:: 2 if name == "LSB_MCPU_HOSTS" else 1]
        return identity.Fact(tuple(dict.fromkeys(words)), name) if words else None

    def job(self) -> identity.Fact | None:
        """The job's number, and the task's number in an array (LSB_JOBINDEX=0: no array)."""
        names = [
            n for n in ("LSB_JOBID", "LSB_JOBINDEX") if self.environ.get(n, "") not in ("", "0")
        ]
        return identity.Fact(".".join(self.environ[name] for name in names), ".".join(names))

    def launcher_flags(self) -> tuple[str, ...]:
        return ()

    def start_line(self, command: str, n: int) -> str:
        hosts = self.hosts()
        return f"blaunch -z {quote(' '.join(hosts.value) if hosts else 'HOSTS')} {command}"


class Oar(HostList):
    """A process on a host of an OAR job.

        OAR_JOB_ID=4  OAR_NODEFILE=/var/lib/oar/4: a line per core, under several names

    Source: OAR's documentation for users, "Environment variables" and oarsh; its oarexec.
    """

    name = "OAR"
    needs = job_from = ("OAR_JOB_ID",)
    lists = ("OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES", "OAR_RESOURCE_FILE")
    remote_shell = "-R exec -w {hosts} oarsh %h"
