"""Each rank starts processes, in all ways that multiprocessing has, which know their rank.

Source: PyTorch's documentation, torch.utils.data, DataLoader, multiprocessing_context
"""

import multiprocessing
import os


def square(number):
    return os.environ["RANK"], __name__, number**2


if __name__ == "__main__":
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(3)))
