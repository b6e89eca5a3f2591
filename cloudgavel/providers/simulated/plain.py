"""JSON values of objects that do not change, made once: a state is written often."""

from typing import Any

from cloudgavel.messages.codec import to_plain


class PlainForms:
    """The plain form by key, for as long as the key stands for the same object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, Any]] = {}

    def of(self, key: str, value: object) -> Any:
        """Return ``value`` as JSON values, which are not to be changed."""
        known = self._known.get(key)
        if known is None or known[0] is not value:
            known = (value, to_plain(value))
            self._known[key] = known
        return known[1]
