"""s2fft: harmonic transforms on the sphere."""

from __future__ import annotations

import numpy as np
import s2fft
from scipy.special import sph_harm_y

DEGREES = 16


def test_transform_and_inverse() -> None:
    """A harmonic is a function of SciPy on the points, and transforms return to the coefficients."""
    coefficients = s2fft.utils.signal_generator.generate_flm(np.random.default_rng(0), DEGREES)
    signal = s2fft.inverse_jax(coefficients, DEGREES)
    np.testing.assert_allclose(s2fft.forward_jax(signal, DEGREES), coefficients, atol=1e-4)
    one = np.zeros_like(coefficients)
    one[3, DEGREES - 1 + 2] = 1
    theta = s2fft.sampling.s2_samples.thetas(DEGREES)
    phi = s2fft.sampling.s2_samples.phis_equiang(DEGREES)
    expected = sph_harm_y(3, 2, theta[:, None], phi)
    np.testing.assert_allclose(s2fft.inverse_jax(one, DEGREES), expected, atol=1e-5)
