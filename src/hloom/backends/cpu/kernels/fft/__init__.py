"""Fourier transforms: lane_fft.py transforms sequences side by side, blocks.py moves them, fft.py has the passes."""
