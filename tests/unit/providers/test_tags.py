from hypothesis import given
from hypothesis import strategies as st

from cloudgavel.providers.tags import OFFER_TAG, RUN_TAG, TOKEN_TAG, label_value, tags_of

ALLOWED = set("abcdefghijklmnopqrstuvwxyz0123456789_-")


@given(st.text(max_size=200))
def test_values_fit_the_narrowest_cloud_and_are_stable(text):
    value = label_value(text)
    assert set(value) <= ALLOWED
    assert len(value) <= 63
    assert label_value(value) == value
    assert label_value(text) == value


@given(st.text(max_size=80), st.text(max_size=80))
def test_different_texts_have_different_values(one, other):
    assert (label_value(one) == label_value(other)) == (one == other)


def test_what_fits_stays_readable():
    assert label_value("run-2026_07") == "run-2026_07"
    assert label_value("aws/use1-az1/p3.2xlarge/spot").startswith("aws-use1-az1-p3-2xlarge-spot-")


def test_a_machine_carries_run_token_and_offer():
    tags = tags_of(run_id="run", token="token", offer_id="a/b")
    assert set(tags) == {RUN_TAG, TOKEN_TAG, OFFER_TAG}
    assert (tags[RUN_TAG], tags[TOKEN_TAG]) == ("run", "token")
