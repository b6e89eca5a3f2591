"""`cloudgavel policies`: every policy with what it does and where its formula comes from."""

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def policies(as_json: bool) -> None:
    """List the policies that `policy:` in jobs.yaml may name.

    A policy of your own is named as `module:Class`; `examples/custom_policy.py` shows one.
    """
    from cloudgavel.cli.streams import answer, answer_json, text_width
    from cloudgavel.documents.policies import PoliciesDocument, PolicyEntry
    from cloudgavel.policies.base import world_of
    from cloudgavel.policies.registry import policies as bundled
    from cloudgavel.views.policies import policies_text

    known = bundled()
    names = {policy.name for policy in known}
    entries = []
    for policy in known:
        original = next(
            (
                policy.name.removesuffix(suffix)
                for suffix in ("_agnostic", "_space_sharing")
                if policy.name.endswith(suffix)
            ),
            None,
        )
        entries.append(
            PolicyEntry(
                name=policy.name,
                summary=policy.summary,
                source=policy.source,
                plans_for=world_of(policy),
                variant_of=original if original in names else None,
            )
        )
    document = PoliciesDocument(policies=tuple(entries))
    if as_json:
        answer_json(document.to_json())
    else:
        answer(policies_text(document, width=text_width()))
