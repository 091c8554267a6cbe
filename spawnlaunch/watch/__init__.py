"""What every rank is doing now, and did over its run: for spawnlaunch.top, --record and the report.

The way of a row: screen.show -> Sampler.sample -> RankFinder.ranks -> rank_table.rows.

    find      which launches there are on this machine, and the processes of their ranks
    usage     what each rank uses, from /proc by psutil, and of its device from sysfs or NVML
    step      what the tasks of a step under Slurm see, brought together
    notes     what stands out: who is slow, who leaks, whom the others wait for (pure)
    rank_table  samples as lines of text (pure); screen: the live table
    output_times, progress, device_use  what `usage` asks
    begin, recorder                --record
    story, page, charts, drawing   the report, and --explain=svg

Nothing here is imported by a launch that does not ask for it.
"""
