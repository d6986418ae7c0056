"""Fourier transforms: lane_fft.py transforms sequences in lanes, blocks.py moves them, fft.py has the passes."""
