"""The ways to compute a convolution: register tiles of positions by features, over a padded copy of the input.

An image of the input is copied to the workspace, surrounded by zeros and converted to the type of the sums. In the
copy, every window element is at a constant distance from the position of its output, and so is the next position:
inputs that are `step` apart are stored contiguously ("phases"). Outputs along several axes thus form one row of
positions (`flat` is the number of these axes, the last ones); results at the ends of lines, where windows wrap around,
are not stored. With `flat` 0 the row runs along the batch instead. The sum over K goes through a table of distances,
and for each entry of the table through a `run` of evenly spaced elements: the input features, the last axis of the
window, or both.

The mode determines the contents of a vector, and the meaning of the rows and vectors of a tile:

- "rows": positions by output features; elements of the image are broadcast.
- "columns": output features by positions; elements of the kernel are broadcast.
- "lanes": positions by groups: each lane has its own group, nothing is broadcast (depthwise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hloom.backends.cpu.kernels.convolution.form import Axis, Form
from hloom.backends.cpu.kernels.products.matmul_plan import align_up
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.micro_kernel import Tile
from hloom.target import L2_BYTES

Mode = Literal["rows", "columns", "lanes"]
PASS_BYTES = 2 * L2_BYTES  # of the images that a pass copies
SHORT_RUN = 16  # elements


@dataclass(frozen=True)
class Run:
    """The inner part of K: taps of the last axis (all, or 1 if the table has them), and input features likewise."""

    taps: int
    features: int

    @property
    def length(self) -> int:
        """The elements of the run."""
        return self.taps * self.features


@dataclass(frozen=True)
class ImageAxis:
    """A spatial axis of the image. If it is split, inputs of one phase, `step` apart, are contiguous; else all inputs
    are.
    """

    axis: Axis
    is_split: bool

    @cached_property
    def phases(self) -> int:
        """The number of phases."""
        return max(self.phase_and_index(p)[0] for p in self.axis.positions) + 1 if self.is_split else 1

    @property
    def advance(self) -> int:
        """Positions from one output to the next."""
        return 1 if self.is_split else self.axis.step

    @cached_property
    def extent(self) -> int:
        """Positions of a phase, with padding."""
        _, last = self.phase_and_index(max(self.axis.positions))
        return align_up(last + (self.axis.max_outputs - 1) * self.advance + 1, self.advance)

    def phase_and_index(self, position: int) -> tuple[int, int]:
        """Returns the phase of an input position, and its index within the phase."""
        index, phase = divmod(position - self.axis.min_position, self.axis.step)
        return (phase, index) if self.is_split else (0, position - self.axis.min_position)


@dataclass(frozen=True)
class Geometry:
    """A mode, the axes along which positions run, and the layout of the image for them.

    Vectors have `width` lanes, elements of the image `size` bytes.
    """

    form: Form
    mode: Mode
    flat: int
    width: int
    size: int

    @cached_property
    def features(self) -> int:
        """Input features of an image, in real elements."""
        groups = self.form.groups if self.form.has_feature_groups and self.mode != "lanes" else 1
        return self.form.inputs * self.form.parts * groups

    @property
    def lanes(self) -> int:
        """Output features of all groups in the mode "lanes", else 1."""
        return self.form.groups * self.form.outputs if self.mode == "lanes" else 1

    @cached_property
    def run(self) -> Run:
        """The elements of K for which one entry of the table stands."""
        features = self.form.inputs * self.form.parts
        last = self.form.axes[-1] if self.form.axes else None
        if last is None or last.period > 1 or len(last.positions) == 1:
            return Run(1, features)
        taps = len(last.positions)
        if self.has_features_last and features == self.features and last.spacing.position == 1:
            if last.step == 1 or features < SHORT_RUN:
                return Run(taps, features)
        elif features < taps and not self.form.is_complex and (last.step == 1 or self.mode != "columns"):
            return Run(taps, 1)
        return Run(1, features)

    @cached_property
    def image_axes(self) -> tuple[ImageAxis, ...]:
        """The spatial axes of the image."""
        last = len(self.form.axes) - 1
        return tuple(ImageAxis(axis, not (d == last and self.run.taps > 1)) for d, axis in enumerate(self.form.axes))

    @property
    def has_features_last(self) -> bool:
        """Whether the image has its features contiguous: as the input does, or because K runs along many of them."""
        pays = self.form.input_stride == self.form.parts or self.form.inputs >= SHORT_RUN
        return self.mode == "rows" and pays and not self.has_batch_last

    @property
    def has_batch_last(self) -> bool:
        """Whether the image has its batch contiguous."""
        return self.flat == 0 and (self.mode == "columns" or self.form.batch_strides[0] == self.form.parts == 1)

    # The image

    @cached_property
    def extents(self) -> dict[str, int]:
        """Sizes of the dimensions of an image, outermost first.

        The keys are "g" (group), "b" (batch), "p0", "p1", .. (phase along a spatial axis), "x0", "x1", .. (index within
        the phase), "f" (input feature) and "lane" (output feature of a group, in the mode "lanes").
        """
        sizes = {"g": 1 if self.form.has_feature_groups or self.mode == "lanes" else self.form.groups}
        if self.flat == 0 and not self.has_batch_last:
            sizes["b"] = self.form.batch
        sizes |= {f"p{d}": axis.phases for d, axis in enumerate(self.image_axes)}
        if not self.has_features_last:
            sizes["f"] = self.features
        sizes |= {f"x{d}": axis.extent for d, axis in enumerate(self.image_axes)}
        if self.has_features_last:
            sizes["f"] = self.features
        if self.has_batch_last:
            sizes["b"] = self.form.batch
        if self.mode == "lanes":
            sizes["lane"] = self.lanes
        return sizes

    @cached_property
    def strides(self) -> dict[str, int]:
        """Strides of the dimensions by the keys of `extents`, and of whole images ("image"), in elements."""
        strides, stride = {}, 1
        for name, extent in reversed(self.extents.items()):
            strides[name] = stride
            stride *= extent
            if name == "f" and stride * self.size % 2048 == 0 and self.has_features_last and self.run.taps == 1:
                stride += self.width  # so that positions map to different sets of the cache
        return strides | {"image": stride}

    @property
    def group_stride(self) -> int:
        """The distance between groups in the image."""
        return (
            self.strides["f"] * self.form.inputs * self.form.parts
            if self.form.has_feature_groups
            else self.strides["g"]
        )

    @cached_property
    def run_stride(self) -> int:
        """The distance between elements of a run in the image."""
        if self.run.features > 1 or self.run.taps == 1:
            return self.strides["f"]
        return self.form.axes[-1].spacing.position * self.strides[f"x{len(self.form.axes) - 1}"]

    # Positions

    @property
    def flat_axes(self) -> tuple[ImageAxis, ...]:
        """The axes that form a row of positions."""
        return self.image_axes[len(self.image_axes) - self.flat :]

    @property
    def outer_axes(self) -> tuple[ImageAxis, ...]:
        """The axes with one row of positions for each output."""
        return self.image_axes[: len(self.image_axes) - self.flat]

    def step(self, d: int) -> int:
        """Returns the distance in the image from one output to the next along an axis."""
        return self.strides[f"x{d}"] * self.image_axes[d].advance

    @cached_property
    def row_stride(self) -> int:
        """The distance in the image between adjacent positions of a row."""
        return self.step(len(self.image_axes) - 1) if self.flat else self.strides["b"]

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Positions from one output to the next along each flat axis."""
        first = len(self.image_axes) - self.flat
        return tuple(self.step(d) // self.row_stride for d in range(first, len(self.image_axes)))

    @cached_property
    def positions(self) -> int:
        """Positions in a row."""
        if not self.flat:
            return self.form.batch
        return 1 + sum(
            (image_axis.axis.max_outputs - 1) * pitch
            for image_axis, pitch in zip(self.flat_axes, self.pitches, strict=True)
        )

    @cached_property
    def outer(self) -> int:
        """Rows of positions in an image."""
        return math.prod(image_axis.axis.max_outputs for image_axis in self.outer_axes)

    @property
    def images(self) -> int:
        """The number of images; one image holds the batch if positions run along it."""
        return self.form.batch if self.flat else 1

    @property
    def groups(self) -> int:
        """The number of groups that are computed separately."""
        return 1 if self.mode == "lanes" else self.form.groups

    @cached_property
    def output_features(self) -> int:
        """Output features of a group, in real elements."""
        return self.lanes if self.mode == "lanes" else self.form.outputs * self.form.parts

    @cached_property
    def result(self) -> Matrix:
        """The result as a matrix of a tile's rows and columns."""
        form = self.form
        if self.flat:
            position = form.axes[-1].output_stride * form.axes[-1].period
        else:
            position = form.batch_strides[1]
        if self.mode == "columns":
            return Matrix(form.types[2], form.output_stride, position)
        if form.is_complex and form.output_stride != 2:
            return Matrix(form.types[2], position, form.output_stride, paired=True)
        return Matrix(form.types[2], position, form.output_stride // form.parts)

    # Costs, in cycles of a multiply-add

    def tiles(self, tile: Tile) -> tuple[int, int]:
        """Returns the tiles along a row of positions, and along the features."""
        positions, features = (tile.columns, tile.rows) if self.mode == "columns" else (tile.rows, tile.columns)
        return math.ceil(self.positions / positions), math.ceil(self.output_features / features)

    @cached_property
    def steps(self) -> float:
        """Multiply-adds of an output, on average."""
        return self.form.taps / self.form.classes * self.form.inputs * self.form.parts

    @cached_property
    def rows(self) -> int:
        """Rows of positions of all classes, groups and images."""
        return self.form.classes * self.groups * self.images * self.outer

    @cached_property
    def store_cost(self) -> int:
        """The cost of storing a vector of sums."""
        return 2 if self.result.has_contiguous_rows else 2 * self.width

    def cost(self, tile: Tile) -> float:
        """Returns the cost of all tiles."""
        sums = tile.rows * tile.vectors
        # Vectors of the kernel mostly come from the L2 cache; unaligned ones of positions straddle two cache lines.
        vector = {"rows": 3, "columns": 2 if self.form.taps > 1 else 1, "lanes": 1}[self.mode]
        loads = tile.rows + tile.vectors * vector
        products = self.steps * (max(sums, 8) + 0.1 * loads)
        row_tiles, column_tiles = self.tiles(tile)
        return self.rows * row_tiles * column_tiles * (products + sums * self.store_cost)

    @property
    def copy_cost(self) -> float:
        """The cost of copying all images."""
        name = next(reversed(self.extents))
        axis = self.form.axes[-1] if self.form.axes else None
        is_contiguous = {
            "f": self.form.input_stride == self.form.parts,
            "b": self.form.batch_strides[0] == 1,
            "lane": self.form.group_strides[0] == 1 and self.form.outputs == 1,
        }.get(name, axis is not None and axis.input_stride == 1 and axis.step == 1)
        elements = self.strides["image"]
        cache_penalty = 4 if elements * self.size > PASS_BYTES else 1
        return self.images * elements * cache_penalty * (2 / self.width if is_contiguous else 2)
