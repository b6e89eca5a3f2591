"""How long a round's spot decisions take for a thousand different jobs; tables cold and warm."""

import time

import numpy as np

from cloudgavel.policies.spot.rounds import (
    OnDemandOffer,
    RoundJob,
    Sighting,
    SpotOffer,
    decide_round,
)
from cloudgavel.policies.spot.tables import TableShelf


def main(jobs_count: int = 1000) -> None:
    dice = np.random.default_rng(1)
    spot_names = [f"zone-{index}/spot" for index in range(6)]
    jobs = [
        RoundJob(
            name=f"job-{index}",
            steps_left=float(dice.uniform(1e4, 2e5)),
            steps_total=2e5,
            steps_per_s={
                **{name: 1.0 + 0.3 * place for place, name in enumerate(spot_names)},
                "a/on-demand": 1.0,
                "b/on-demand": 2.5,
            },
            deadline_left_s=float(dice.uniform(2.2e5, 4e5)),
            changeover_s=float(dice.choice([180, 240, 300])),
            lost_work_s=300.0,
        )
        for index in range(jobs_count)
    ]
    shelf = TableShelf()
    for name in ("cold", "warm", "prices moved"):
        moved = 1.0 if name != "prices moved" else 1.1
        spot = [
            SpotOffer(
                offer_id=offer,
                usd_per_hour=moved * (0.8 + 0.2 * place),
                available=bool(dice.random() < 0.7),
                sightings=tuple(
                    Sighting(at_s=1800.0 * k, available=bool(dice.random() < 0.7))
                    for k in range(50)
                ),
            )
            for place, offer in enumerate(spot_names)
        ]
        on_demand = [
            OnDemandOffer(offer_id="a/on-demand", usd_per_hour=3.0),
            OnDemandOffer(offer_id="b/on-demand", usd_per_hour=8.0),
        ]
        began, began_cpu = time.perf_counter(), time.process_time()
        verdicts = decide_round(jobs, spot, on_demand, now_s=9e4, round_s=360.0, shelf=shelf)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        print(
            f"{name:<13} {len(verdicts)} jobs in {seconds:6.2f} s ({cpu_s:.2f} s of CPU), "
            f"tables {shelf.size_bytes / 2**20:.0f} MiB"
        )


if __name__ == "__main__":
    main()
