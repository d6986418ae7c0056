"""The libraries whose tests run on both platforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = "tools/library_tests/examples"
ANY_PLATFORM = {"PYTEST_ADDOPTS": "-p mjx_on_any_platform"}


@dataclass(frozen=True)
class Library:
    """A library and its tests.

    The first of `requirements` is the library, the others are for its tests. `files` are paths in its source
    distribution, or in the repository, which is given if the distribution has no tests. `example` is a test of our own
    in `examples/`. `variables` are environment variables that its tests need; pytest finds `plugins/`.
    """

    name: str
    requirements: tuple[str, ...]
    files: tuple[str, ...] = ()
    repository: str = ""
    example: str = ""
    x64: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        return self.requirements[0].partition("~")[0]

    def tests(self, own: Path, checkout: Path) -> dict[str, Path]:
        """Returns the test files, each with the folder that it is relative to; `own` is hloom's checkout."""
        examples = {f"{EXAMPLES}/{self.example}.py": own} if self.example else {}
        return examples | dict.fromkeys(self.files, checkout)


LIBRARIES = (
    Library(
        "mjx",
        ("mujoco-mjx~=3.0", "etils[epath]", "absl-py"),
        (
            "mujoco/mjx/_src/math_test.py",
            "mujoco/mjx/_src/scan_test.py",
            "mujoco/mjx/_src/smooth_test.py",
            "mujoco/mjx/_src/ray_test.py",
            "mujoco/mjx/_src/support_test.py",
        ),
        example="mjx",
        variables=ANY_PLATFORM,
    ),
    Library(
        "optax",
        ("optax~=0.2.8", "chex", "flax", "scikit-learn"),
        (
            "optax/_src/alias_test.py",
            "optax/_src/linesearch_test.py",
            "optax/_src/linear_algebra_test.py",
            "optax/losses/_classification_test.py",
            "optax/projections/_projections_test.py",
            "optax/assignment/_hungarian_algorithm_test.py",
        ),
    ),
    Library(
        "flax",
        ("flax~=0.12.8", "optax", "chex", "einops", "cloudpickle"),
        (
            "tests/linen/linen_linear_test.py",
            "tests/linen/linen_recurrent_test.py",
            "tests/linen/linen_transforms_test.py",
            "tests/nnx/nn/attention_test.py",
            "tests/nnx/nn/normalization_test.py",
            "tests/nnx/transforms_test.py",
        ),
    ),
    Library(
        "equinox",
        ("equinox~=0.13.8", "beartype", "optax"),
        ("tests/test_nn.py", "tests/test_while_loop.py", "tests/test_errors.py", "tests/test_jit.py"),
        repository="https://github.com/patrick-kidger/equinox",
    ),
    Library(
        "diffrax",
        ("diffrax~=0.7.2", "beartype", "optax", "scipy"),
        ("test/test_event.py", "test/test_interpolation.py", "test/test_integrate.py", "test/test_solver.py"),
        repository="https://github.com/patrick-kidger/diffrax",
    ),
    Library(
        "numpyro",
        ("numpyro~=0.22.0", "flax", "optax", "scikit-learn", "tfp-nightly"),
        ("test/test_handlers.py", "test/test_transforms.py", "test/test_distributions_util.py", "test/test_nn.py"),
    ),
    Library(
        "blackjax",
        ("blackjax~=1.7", "chex", "absl-py"),
        (
            "tests/mcmc/test_integrators.py",
            "tests/mcmc/test_metrics.py",
            "tests/mcmc/test_trajectory.py",
            "tests/smc/test_tempered_smc.py",
            "tests/vi/test_svgd.py",
        ),
    ),
    Library(
        "brax",
        ("brax~=0.14.2", "absl-py"),
        (
            "brax/math_test.py",
            "brax/scan_test.py",
            "brax/kinematics_test.py",
            "brax/com_test.py",
            "brax/positional/joints_test.py",
            "brax/spring/pipeline_test.py",
        ),
        variables=ANY_PLATFORM,
    ),
    Library(
        "e3nn",
        ("e3nn-jax~=0.21.0", "flax", "dm-haiku", "equinox", "optax"),
        (
            "tests/_src/so3_test.py",
            "tests/_src/s2grid_test.py",
            "tests/_src/tensor_products_test.py",
            "tests/_src/spherical_harmonics/sh_test.py",
            "tests/_src/linear_flax_test.py",
        ),
    ),
    Library(
        "jax-md",
        ("jax-md~=0.2.29", "netCDF4"),
        ("tests/space_test.py", "tests/minimize_test.py", "tests/quantity_test.py", "tests/smap_test.py"),
        x64=True,
    ),
    Library(
        "keras",
        ("keras~=3.15", "scikit-learn", "pandas"),
        (
            "keras/src/ops/nn_test.py",
            "keras/src/ops/linalg_test.py",
            "keras/src/layers/convolutional/conv_test.py",
            "keras/src/layers/rnn/lstm_test.py",
            "keras/src/backend/jax/trainer_test.py",
        ),
        variables={"KERAS_BACKEND": "jax"},
    ),
    Library("distrax", ("distrax~=0.1.9", "scipy"), example="distributions"),
    Library("tinygp", ("tinygp~=0.3.1",), example="gaussian_process"),
    Library("optimistix", ("optimistix~=0.1.0", "lineax"), example="solvers"),
    Library("dynamax", ("dynamax~=1.0", "scipy"), example="state_space"),
    Library("netket", ("netket~=3.23",), example="ground_state", x64=True),
    Library("s2fft", ("s2fft~=1.5", "scipy"), example="sphere", x64=True),
    Library("ott-jax", ("ott-jax~=0.6.0", "scipy"), example="transport"),
    Library("mctx", ("mctx~=0.0.6",), example="tree_search"),
    Library("dm-haiku", ("dm-haiku~=0.0.17",), example="networks"),
    Library("pgx", ("pgx~=2.6",), example="games"),
    Library(
        "array-api-tests",
        ("jax~=0.10.2", "hypothesis", "ndindex", "pytest-json-report"),
        (
            "array_api_tests/test_array_object.py",
            "array_api_tests/test_creation_functions.py",
            "array_api_tests/test_data_type_functions.py",
            "array_api_tests/test_fft.py",
            "array_api_tests/test_indexing_functions.py",
            "array_api_tests/test_linalg.py",
            "array_api_tests/test_manipulation_functions.py",
            "array_api_tests/test_operators_and_elementwise_functions.py",
            "array_api_tests/test_searching_functions.py",
            "array_api_tests/test_set_functions.py",
            "array_api_tests/test_sorting_functions.py",
            "array_api_tests/test_special_cases.py",
            "array_api_tests/test_statistical_functions.py",
            "array_api_tests/test_utility_functions.py",
        ),
        repository="https://github.com/data-apis/array-api-tests",
        x64=True,
        variables={
            "ARRAY_API_TESTS_MODULE": "jax.numpy",
            "PYTEST_ADDOPTS": "--max-examples=20 --disable-deadline --derandomize",
        },
    ),
)
