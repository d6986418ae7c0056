"""The ways to compute a convolution: register tiles of positions by features, over a padded copy of the input.

An image of the input is copied to the workspace, surrounded by zeros and converted to the type of the sums. In the
copy, every window element is at a constant distance from the position of its output, and so is the next position:
inputs that are `step` apart are stored contiguously ("phases"). Outputs along several axes thus form one row of
positions (`flat` is the number of these axes, the last ones); results at the ends of lines, where windows wrap around,
are not stored. With `flat` 0 the row runs along the batch instead. The sum over K goes through a table of distances,
and for each entry of the table through a `run` of evenly spaced elements: the input features, the last axis of the
window, or both.
"""

from __future__ import annotations

import math
from enum import Enum

from hloom.backends.cpu.kernels.convolution.form import Axis, Form
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.target import align_up

SHORT_RUN = 16  # elements


class Mode(Enum):
    """The contents of a vector, and the meaning of the rows and vectors of a tile."""

    ROWS = "rows"
    """Positions by output features; elements of the image are broadcast."""
    COLUMNS = "columns"
    """Output features by positions; elements of the kernel are broadcast."""
    LANES = "lanes"
    """Positions by groups: each lane has its own group, nothing is broadcast (depthwise)."""


class Role(Enum):
    """Quantities that the dimensions of an image count."""

    GROUP = "group"
    BATCH = "batch"
    PHASE = "phase"
    POSITION = "position"
    """Positions within a phase."""
    FEATURE = "feature"
    """Input features."""
    LANE = "lane"
    """Output features of all groups, in Mode.LANES."""


@record
class ImageDimension:
    """A dimension of an image; phases and positions are those of the spatial axis with index `axis`."""

    role: Role
    axis: int = 0


GROUP, BATCH, FEATURE, LANE = map(ImageDimension, (Role.GROUP, Role.BATCH, Role.FEATURE, Role.LANE))


def phase(axis: int) -> ImageDimension:
    """Returns the dimension of the phases along an axis."""
    return ImageDimension(Role.PHASE, axis)


def position(axis: int) -> ImageDimension:
    """Returns the dimension of the positions within a phase along an axis."""
    return ImageDimension(Role.POSITION, axis)


@record
class Run:
    """The inner part of K: taps of the last axis (all, or 1 if the table has them), and input features likewise."""

    taps: int
    features: int

    @property
    def length(self) -> int:
        """The elements of the run."""
        return self.taps * self.features


@record
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


@record
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
        groups = self.form.groups if self.form.has_feature_groups and self.mode is not Mode.LANES else 1
        return self.form.inputs * self.form.parts * groups

    @property
    def lanes(self) -> int:
        """Output features of all groups in Mode.LANES, else 1."""
        return self.form.groups * self.form.outputs if self.mode is Mode.LANES else 1

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
        elif features < taps and not self.form.is_complex and (last.step == 1 or self.mode is not Mode.COLUMNS):
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
        return self.mode is Mode.ROWS and pays and not self.has_batch_last

    @property
    def has_batch_last(self) -> bool:
        """Whether the image has its batch contiguous."""
        return self.flat == 0 and (self.mode is Mode.COLUMNS or self.form.batch_strides[0] == self.form.parts == 1)

    # The image

    @cached_property
    def extents(self) -> dict[ImageDimension, int]:
        """Sizes of the dimensions of an image, outermost first."""
        separate_groups = self.form.has_feature_groups or self.mode is Mode.LANES
        sizes = {GROUP: 1 if separate_groups else self.form.groups}
        if self.flat == 0 and not self.has_batch_last:
            sizes[BATCH] = self.form.batch
        sizes |= {phase(d): axis.phases for d, axis in enumerate(self.image_axes)}
        if not self.has_features_last:
            sizes[FEATURE] = self.features
        sizes |= {position(d): axis.extent for d, axis in enumerate(self.image_axes)}
        if self.has_features_last:
            sizes[FEATURE] = self.features
        if self.has_batch_last:
            sizes[BATCH] = self.form.batch
        if self.mode is Mode.LANES:
            sizes[LANE] = self.lanes
        return sizes

    @property
    def strides(self) -> dict[ImageDimension, int]:
        """Strides of the dimensions of an image, in elements."""
        return self._layout[0]

    @property
    def image_size(self) -> int:
        """The elements of an image."""
        return self._layout[1]

    @cached_property
    def _layout(self) -> tuple[dict[ImageDimension, int], int]:
        """The strides, and the size of an image."""
        strides, stride = {}, 1
        for dimension, extent in reversed(self.extents.items()):
            strides[dimension] = stride
            stride *= extent
            is_long_run = dimension == FEATURE and self.has_features_last and self.run.taps == 1
            if is_long_run and stride * self.size % 2048 == 0:
                stride += self.width  # so that positions map to different sets of the cache
        return strides, stride

    @property
    def group_stride(self) -> int:
        """The distance between groups in the image."""
        if self.form.has_feature_groups:
            return self.strides[FEATURE] * self.form.inputs * self.form.parts
        return self.strides[GROUP]

    @cached_property
    def run_stride(self) -> int:
        """The distance between elements of a run in the image."""
        if self.run.features > 1 or self.run.taps == 1:
            return self.strides[FEATURE]
        return self.form.axes[-1].spacing.position * self.strides[position(len(self.form.axes) - 1)]

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
        return self.strides[position(d)] * self.image_axes[d].advance

    @cached_property
    def row_stride(self) -> int:
        """The distance in the image between adjacent positions of a row."""
        return self.step(len(self.image_axes) - 1) if self.flat else self.strides[BATCH]

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
        return 1 if self.mode is Mode.LANES else self.form.groups

    @cached_property
    def output_features(self) -> int:
        """Output features of a group, in real elements."""
        return self.lanes if self.mode is Mode.LANES else self.form.outputs * self.form.parts

    @cached_property
    def result(self) -> Matrix:
        """The result as a matrix of a tile's rows and columns."""
        form = self.form
        if self.flat:
            stride = form.axes[-1].output_stride * form.axes[-1].period
        else:
            stride = form.batch_strides[1]
        if self.mode is Mode.COLUMNS:
            return Matrix(form.types[2], form.output_stride, stride)
        if form.is_complex and form.output_stride != 2:
            return Matrix(form.types[2], stride, form.output_stride, paired=True)
        return Matrix(form.types[2], stride, form.output_stride // form.parts)

    def tiles(self, tile: Tile) -> tuple[int, int]:
        """Returns the tiles along a row of positions, and along the features."""
        positions, features = self.positions_of(tile), self.features_of(tile)
        return -(-self.positions // positions), -(-self.output_features // features)

    def positions_of(self, tile: Tile) -> int:
        """Returns the positions in a tile."""
        return tile.columns if self.mode is Mode.COLUMNS else tile.rows

    def features_of(self, tile: Tile) -> int:
        """Returns the output features in a tile."""
        return tile.rows if self.mode is Mode.COLUMNS else tile.columns
