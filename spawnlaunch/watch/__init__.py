"""The state of every rank now, and over its run: for `spawnlaunch top`, --record and the report.

The way of a row: screen.show -> Sampler.sample -> RankFinder.ranks -> rank_table.rows.

    find      the launches on this machine, and the processes of their ranks
    usage     the resources of each rank, from /proc by psutil, and of its device from sysfs or NVML
    step      the samples of all tasks of a step under Slurm, brought together
    notes     notes on ranks that are slow, that leak, or that the others wait for (pure)
    rank_table  samples as lines of text (pure); screen: the live table
    output_times, progress, device_use  the sources of `usage`
    journal, recorder              --record
    story, page, charts, drawing   the report, and --explain=svg

Nothing here is imported by a launch that does not ask for it.
"""
