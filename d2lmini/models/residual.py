"""The residual block of d2l's small ResNets."""

from torch import nn


class Residual(nn.Module):
    """Two 3×3 convolutions with batch normalization, to which the input is added; images of any size.

    ``Residual(64)`` has 64 output channels, and finds those of the input at the first call; ``Residual(32, 64)`` names
    both.

    Args:
        channels: One or two numbers.
        use_1x1conv: Whether the input passes a 1×1 convolution, as it must where channels or `strides` change its
            shape.
        strides: Of the first convolution.

    Raises:
        TypeError: Not one or two numbers of channels.
    """

    def __init__(self, *channels, use_1x1conv=False, strides=1):
        super().__init__()
        if len(channels) not in (1, 2):
            raise TypeError(f"expected the channels that come out, or those in and out, got {len(channels)} numbers")
        inputs, outputs = channels[0], channels[-1]
        convolution = nn.LazyConv2d if len(channels) == 1 else lambda *args, **how: nn.Conv2d(inputs, *args, **how)
        self.conv1 = convolution(outputs, kernel_size=3, padding=1, stride=strides)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1)
        self.conv3 = convolution(outputs, kernel_size=1, stride=strides) if use_1x1conv else None
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x):
        """Return the sum, rectified; shapes (batch, channels, height, width)."""
        y = self.bn2(self.conv2(nn.functional.relu(self.bn1(self.conv1(x)))))
        return nn.functional.relu(y + (x if self.conv3 is None else self.conv3(x)))
