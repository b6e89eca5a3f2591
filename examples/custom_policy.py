"""A policy of one's own: fair, but not at any price.

In jobs.yaml: `policy: custom_policy:CheapAndFair` (this file's folder must be on `PYTHONPATH`).
Run `python examples/custom_policy.py` to see what it does with three jobs.
"""

from cloudgavel.policies.fixed.compose import maximise
from cloudgavel.policies.fixed.constraints import at_least_isolated, meets_deadlines
from cloudgavel.policies.fixed.terms import least_normalised_throughput, usd_per_hour

CheapAndFair = maximise(
    least_normalised_throughput() - 0.05 * usd_per_hour(),
    subject_to=[meets_deadlines(margin=0.1), at_least_isolated(0.5)],
    name="cheap_and_fair",
    summary="fair, and cheaper where that costs little fairness",
)


if __name__ == "__main__":
    import numpy as np

    from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool
    from cloudgavel.pricing.offer import CapacityType

    pools = [
        Pool(
            label=name,
            offer_id=name,
            accelerator=name,
            capacity_type=CapacityType.RESERVED,
            gang_size=1,
            accelerators_per_instance=1,
            shareable=True,
            price_usd_per_hour=price,
        )
        for name, price in (("V100", 2.48), ("K80", 0.45))
    ]
    rates = np.array([[10.0, 1.0], [4.0, 2.0], [3.0, 2.0]])
    problem = AllocationProblem(
        jobs=tuple(JobRow(name=name, steps_left=40_000.0) for name in ("lm", "resnet", "gan")),
        pools=tuple(pools),
        throughput_steps_per_s=rates,
        feasible=np.ones((3, 2), dtype=bool),
        change_over_s=np.zeros((3, 2)),
        cluster_accelerators=(1, 1),
    )
    found = CheapAndFair.allocate(problem)
    print(f"{found.status.value}: {CheapAndFair.source}")
    for job, row in zip(problem.jobs, found.shares, strict=True):
        parts = [f"{pool.label} {share:5.0%}" for pool, share in zip(pools, row, strict=True)]
        print(f"  {job.name:8}{'   '.join(parts)}")
