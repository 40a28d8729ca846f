"""Remedies that several places name in the same words."""


def created_or_corrected(topic: str) -> str:
    """What to do about a topic that is not there: a mistyped name must not become a topic that nobody reads."""
    return (
        f"if the name is right, create it with `python -m relay topics ensure {topic}`; "
        "if it is mistyped, correct RELAY_TOPIC, RELAY_ROUTES or the rows"
    )
