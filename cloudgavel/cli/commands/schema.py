"""`cloudgavel schema`: the JSON Schema of jobs.yaml for editors."""

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of jobs.yaml, for completion and checks in editors."""
    import json

    from cloudgavel.jobs.json_schema import jobs_yaml_schema

    click.echo(json.dumps(jobs_yaml_schema(), indent=2))
