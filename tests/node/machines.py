"""Machines as their sites and vendors publish them: facts, each with its source.

What a table does not say is left out, or invented by the builder (PCI addresses, memory sizes).
"""

from tests.node.tree import AMD, INTEL, Gpu, Machine, cores


def _regular(groups: int, size: int, total: int, threads: int = 2) -> tuple[str, ...]:
    """Equal groups of consecutive cores, with their second threads `total` further on."""
    return tuple(
        ",".join(
            f"{g * size + t * total}-{g * size + size - 1 + t * total}" for t in range(threads)
        )
        for g in range(groups)
    )


def _numa(groups: tuple[str, ...]) -> dict[int, str]:
    return dict(enumerate(groups))


_CCD = _regular(8, 8, 64)
_QUADRANTS = _regular(4, 16, 64)
# Each half of an MI250X hangs on the L3 group of its own, and not in their order.
_MI250X = tuple(
    Gpu(ccd // 2, _CCD[ccd], f"0000:{bus}:00.0", AMD, model=0x7408)
    for ccd, bus in zip(
        (6, 7, 2, 3, 0, 1, 4, 5), ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de"), strict=True
    )
)

LUMI = Machine(
    "LUMI-G",
    "LUMI documentation, runjobs/scheduled-jobs/distribution-binding",
    cores(64, 2),
    _numa(_QUADRANTS),
    _CCD,
    ("0-127",),
    _MI250X,
)
FRONTIER = LUMI._replace(name="Frontier", source="OLCF documentation, systems/frontier_user_guide")
PERLMUTTER = Machine(
    "Perlmutter",
    "output of nvidia-smi topo on a node, in a user's repository",
    cores(64, 2),
    _numa(_QUADRANTS),
    _CCD,
    ("0-127",),
    tuple(Gpu(numa, _QUADRANTS[numa]) for numa in (3, 2, 1, 0)),
)
_JUWELS = _regular(8, 6, 48)
JUWELS_BOOSTER = Machine(
    "JUWELS Booster",
    "POP CoE, gpu-affinity/juwels-booster; JSC, juwels/booster-overview",
    cores(48, 2),
    _numa(_JUWELS),
    _regular(16, 3, 48),
    _regular(2, 24, 48),
    tuple(Gpu(numa, _JUWELS[numa]) for numa in (3, 1, 7, 5)),
)
_DGX = _regular(8, 16, 128)
DGX_A100 = Machine(
    "DGX A100",
    "github.com/NVIDIA/nccl/issues/1505; dgxa100_ccx.sh in NVIDIA/DeepLearningExamples",
    cores(128, 2),
    _numa(_DGX),
    _regular(32, 4, 128),
    _regular(2, 64, 128),
    tuple(Gpu(numa, _DGX[numa]) for numa in (3, 3, 1, 1, 7, 7, 5, 5)),
)
_HGX = _regular(2, 56, 112)
HGX_H100 = Machine(
    "HGX H100",
    "github.com/vllm-project/vllm/issues/13855; numa_config of MLPerf submissions",
    cores(112, 2),
    _numa(_HGX),
    _HGX,
    _HGX,
    tuple(Gpu(i // 4, _HGX[i // 4]) for i in range(8)),
)
_GRACE = _regular(4, 72, 288, threads=1)
GH200 = Machine(
    "Alps",
    "CSCS documentation, running/slurm; 32 more NUMA nodes: NVIDIA/mlperf-common pull 16",
    cores(288),
    {**_numa(_GRACE), **dict.fromkeys(range(4, 36), "")},
    _GRACE,
    _GRACE,
    tuple(Gpu(i, _GRACE[i]) for i in range(4)),
)
_AURORA = _regular(2, 52, 104)
AURORA = Machine(
    "Aurora",
    "ALCF documentation, aurora/running-jobs-aurora",
    cores(104, 2),
    {**_numa(_AURORA), 2: "", 3: ""},
    _AURORA,
    _AURORA,
    tuple(Gpu(i // 3, _AURORA[i // 3], vendor=INTEL, parts=2) for i in range(6)),
)
_APU = _regular(4, 24, 96)
MI300A = Machine(
    "MI300A",
    "hwloc-data/tuo.SPX in flux-framework/flux-core; github.com/ROCm/llvm-project/pull/823",
    cores(96, 2),
    _numa(_APU),
    _regular(12, 8, 96),
    _APU,
    tuple(Gpu(i, _APU[i], f"000{i}:02:00.0", AMD, model=0x74A0) for i in range(4)),
)
_MN5 = _regular(2, 40, 80, threads=1)
MARENOSTRUM5 = Machine(
    "MareNostrum 5",
    "POP CoE, gpu-affinity/mare-nostrum-5",
    cores(80),
    _numa(_MN5),
    _MN5,
    _MN5,
    tuple(Gpu(i // 2, _MN5[i // 2]) for i in range(4)),
)

ALL = (LUMI, FRONTIER, PERLMUTTER, JUWELS_BOOSTER, DGX_A100, HGX_H100, GH200, AURORA, MI300A,
       MARENOSTRUM5)  # fmt: skip
