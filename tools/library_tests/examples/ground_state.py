"""NetKet: the ground state of Ising's chain in a transverse field."""

from __future__ import annotations

import netket
import numpy as np

SITES = 8


def test_ground_state_energy() -> None:
    """The energy found by variation is that of free fermions, and so is that of the exact diagonalisation."""
    momenta = (2 * np.arange(SITES) + 1) * np.pi / SITES
    expected = -np.sqrt(2 - 2 * np.cos(momenta)).sum()
    space = netket.hilbert.Spin(0.5, N=SITES)
    energy = netket.operator.Ising(space, netket.graph.Chain(SITES), h=1.0)
    np.testing.assert_allclose(netket.exact.lanczos_ed(energy)[0], expected, rtol=1e-9)
    sampler = netket.sampler.MetropolisLocal(space, n_chains=16)
    state = netket.vqs.MCState(sampler, netket.models.RBM(alpha=2), n_samples=512, seed=1, sampler_seed=2)
    method = netket.optimizer.Sgd(0.05)
    metric = netket.optimizer.SR(diag_shift=0.01)
    netket.driver.VMC(energy, method, variational_state=state, preconditioner=metric).run(150, show_progress=False)
    np.testing.assert_allclose(state.expect(energy).mean.real, expected, rtol=5e-3)
