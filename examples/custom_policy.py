"""A policy of one's own: fair, but not at any price.

Put this file beside a jobs.yaml that says `policy: custom_policy:CheapAndFair`: `plan` and `run`
use it then. On a fixed cluster: `simulate --cluster ... --policies custom_policy:CheapAndFair`.
"""

from cloudgavel.policies.fixed.compose import maximise
from cloudgavel.policies.fixed.constraints import meets_deadlines, pays_for_all_work
from cloudgavel.policies.fixed.terms import least_normalised_throughput, usd_per_hour

CheapAndFair = maximise(
    least_normalised_throughput() - 0.05 * usd_per_hour(),
    subject_to=[meets_deadlines(margin=0.1), pays_for_all_work()],
    name="cheap_and_fair",
    summary="fair, and cheaper where that costs little fairness",
)
