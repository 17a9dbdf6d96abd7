"What other processes make for the tests of calls; its module is found there, where a package `tests` may be another."
import os
import time

from loflexmdm.support.limits import check_time


class Toy:
    "Calls that end, fail, loop, hang or die."
    def count(self, n): yield from range(n)
    def bad(self): raise ValueError("n=x: must be a number")
    def broken(self): raise KeyError("a defect")
    def pid(self): return os.getpid()
    def hang(self): time.sleep(100)
    def die(self): os._exit(3)
    def take(self, seconds): time.sleep(seconds)

    def loop(self):
        while True:
            check_time()
            time.sleep(0.01)


def refuse(): raise ValueError("cannot be made")
