import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.estimation.column_model import ColumnModel, condition, fit_columns


def a_prior(columns: int, dice: np.random.Generator) -> ColumnModel:
    factors = dice.normal(size=(columns, columns))
    return ColumnModel(
        mean=dice.normal(size=columns), covariance=factors @ factors.T + 0.3 * np.eye(columns)
    )


def a_matrix(rows: int, columns: int, dice: np.random.Generator) -> np.ndarray:
    values = dice.normal(size=(rows, 1)) * 3 + dice.normal(size=(rows, columns))
    return np.where(dice.random((rows, columns)) < 0.6, values, np.nan)


def test_a_known_scale_gives_the_textbook_conditional_normal():
    prior = a_prior(4, np.random.default_rng(0))
    model = ColumnModel(mean=prior.mean, covariance=prior.covariance, flat_offset=False)
    known, values = np.array([0, 2]), np.array([1.0, -2.0])
    belief = condition(model, known, values)
    rest = [1, 3]
    cov = model.covariance
    gain = cov[np.ix_(rest, known)] @ np.linalg.inv(cov[np.ix_(known, known)])
    assert belief.mean[rest] == pytest.approx(
        model.mean[rest] + gain @ (values - model.mean[known]), abs=1e-4
    )
    left = cov[np.ix_(rest, rest)] - gain @ cov[np.ix_(known, rest)]
    assert belief.sd[rest] == pytest.approx(np.sqrt(np.diag(left)), abs=1e-4)


def test_a_flat_offset_is_the_limit_of_a_very_wide_one():
    prior = a_prior(5, np.random.default_rng(1))
    wide = ColumnModel(
        mean=prior.mean, covariance=prior.covariance + 1e6 * np.ones((5, 5)), flat_offset=False
    )
    known, values = np.array([1, 3, 4]), np.array([0.3, 1.0, -1.0])
    flat, limit = condition(prior, known, values), condition(wide, known, values)
    assert flat.mean == pytest.approx(limit.mean, abs=1e-3)
    assert flat.sd == pytest.approx(limit.sd, abs=1e-3)


def test_what_is_known_exactly_comes_back_exactly():
    prior = a_prior(3, np.random.default_rng(2))
    belief = condition(prior, np.arange(3), np.array([0.1, 1e-9, 20.5]))
    assert belief.mean.tolist() == [0.1, 1e-9, 20.5]
    assert belief.sd.tolist() == [0.0, 0.0, 0.0]


def test_nothing_known_of_a_row_is_unknown_not_a_number():
    prior = a_prior(3, np.random.default_rng(2))
    nothing = np.array([], dtype=np.int64)
    assert np.isinf(condition(prior, nothing, np.array([])).sd).all()
    fixed = ColumnModel(mean=prior.mean, covariance=prior.covariance, flat_offset=False)
    belief = condition(fixed, nothing, np.array([]))
    assert belief.mean.tolist() == prior.mean.tolist()
    assert belief.sd == pytest.approx(np.sqrt(np.diag(prior.covariance)))


def test_noise_keeps_a_known_entry_uncertain():
    prior = a_prior(3, np.random.default_rng(3))
    known, values = np.array([0, 0]), np.array([1.0, 1.4])
    belief = condition(prior, known, values, noise=0.1 * np.eye(2))
    assert belief.mean[0] == pytest.approx(1.2, abs=1e-3)
    assert belief.sd[0] == pytest.approx(np.sqrt(0.05), abs=1e-3)


def test_without_data_the_prior_comes_back():
    prior = a_prior(3, np.random.default_rng(4))
    one_each = np.array([[1.0, np.nan, np.nan], [np.nan, np.nan, 5.0]])
    model = fit_columns(one_each, prior.mean, prior.covariance)
    assert model.mean.tolist() == prior.mean.tolist()
    assert model.covariance.tolist() == prior.covariance.tolist()


def test_much_data_outweighs_the_prior():
    dice = np.random.default_rng(5)
    truth = a_prior(3, dice)
    values = dice.multivariate_normal(truth.mean, truth.covariance, size=4000)
    values += dice.normal(size=(4000, 1)) * 5
    values[dice.random(values.shape) < 0.3] = np.nan
    model = fit_columns(values, np.zeros(3), np.eye(3))
    contrasts = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    assert contrasts @ model.mean == pytest.approx(contrasts @ truth.mean, abs=0.1)
    found = contrasts @ model.covariance @ contrasts.T
    wanted = contrasts @ truth.covariance @ contrasts.T
    assert found == pytest.approx(wanted, rel=0.1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(2, 6))
def test_the_order_of_rows_and_columns_does_not_matter(seed, rows, columns):
    dice = np.random.default_rng(seed)
    prior, values = a_prior(columns, dice), a_matrix(rows, columns, dice)
    by_row, by_column = dice.permutation(rows), dice.permutation(columns)
    one = fit_columns(values, prior.mean, prior.covariance)
    other = fit_columns(
        values[np.ix_(by_row, by_column)],
        prior.mean[by_column],
        prior.covariance[np.ix_(by_column, by_column)],
    )
    assert other.mean == pytest.approx(one.mean[by_column], rel=1e-6, abs=1e-6)
    assert other.covariance == pytest.approx(
        one.covariance[np.ix_(by_column, by_column)], rel=1e-6, abs=1e-6
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(-20.7, 20.7))
def test_a_row_in_other_units_is_the_same_row(seed, shift):
    """Nine orders of magnitude either way: the unit of a step is a job's own affair."""
    dice = np.random.default_rng(seed)
    prior, values = a_prior(4, dice), a_matrix(5, 4, dice)
    model = fit_columns(values, prior.mean, prior.covariance)
    shifted = values + shift * np.arange(5)[:, None]
    again = fit_columns(shifted, prior.mean, prior.covariance)
    assert again.mean == pytest.approx(model.mean, abs=1e-6)
    assert again.covariance == pytest.approx(model.covariance, rel=1e-6, abs=1e-6)
    known = np.array([0, 2])
    here = condition(model, known, np.array([1.0, 1.5]))
    there = condition(model, known, np.array([1.0, 1.5]) + shift)
    assert there.mean == pytest.approx(here.mean + shift, abs=1e-6)
    assert there.sd == pytest.approx(here.sd, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_uncertainty_shrinks_with_every_further_entry(seed):
    dice = np.random.default_rng(seed)
    prior = a_prior(6, dice)
    values = dice.normal(size=6)
    order = dice.permutation(6)
    before = np.full(6, np.inf)
    for count in range(1, 7):
        sd = condition(prior, order[:count], values[order[:count]]).sd
        assert (sd <= before + 1e-4).all()
        before = sd


def test_the_covariance_stays_positive_definite_with_columns_never_seen():
    dice = np.random.default_rng(6)
    prior, values = a_prior(6, dice), a_matrix(8, 6, dice)
    values[:, 4] = np.nan
    model = fit_columns(values, prior.mean, prior.covariance)
    assert np.linalg.eigvalsh(model.covariance).min() > 0
    assert np.isfinite(model.mean).all()
