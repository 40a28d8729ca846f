"""What a text has to be that is to be kept."""


def is_kept(text: str, most: int) -> bool:
    """Whether Postgres keeps it as it is, and it is something, of up to so many characters."""
    if not text.strip() or len(text) > most or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
