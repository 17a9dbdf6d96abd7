"Calls that processes answer: parts, errors, overruns, leaving, the queue."
import asyncio
import contextlib
import os
from functools import partial

import pytest

from callee import Toy, refuse
from loflexmdm.support.limits import Budget
from loflexmdm.support.workers import Busy, Died, Workers


def with_workers(test, n=1, **more):
    "Run a coroutine with workers."
    async def main():
        workers = Workers(Toy, n, **more)
        try:
            await workers.open()
            return await test(workers)
        finally: workers.close()
    return asyncio.run(asyncio.wait_for(main(), 60))


def test_parts_errors_and_defects(capfd):
    async def test(workers):
        assert [part async for part in workers.call("count", 3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="n=x: must be a number"): await workers.result("bad")
        with pytest.raises(RuntimeError, match="internal error .KeyError."): await workers.result("broken")
        return await workers.result("pid")
    assert with_workers(test) != os.getpid() and "a defect" in capfd.readouterr().err


def test_a_loop_is_asked_to_stop_and_a_process_that_hangs_is_ended():
    async def test(workers):
        first = await workers.result("pid")
        with pytest.raises(TimeoutError, match="seconds=0.1"): await workers.result("loop", budget=Budget(seconds=0.1))
        left = asyncio.ensure_future(workers.result("loop"))
        await asyncio.sleep(0.2)
        left.cancel()
        assert await workers.result("pid") == first and workers.restarts == 0
        with pytest.raises(TimeoutError, match="seconds=0.1"): await workers.result("hang", budget=Budget(seconds=0.1))
        assert await workers.result("pid") != first and workers.restarts == 1
        with pytest.raises(Died, match="exit code 3"): await workers.result("die")
        assert await workers.result("count", 2) == 1 and workers.restarts == 2
    with_workers(test)


def test_callers_take_turns_and_too_many_are_refused():
    async def test(workers):
        await workers.result("pid")
        ended = []

        async def run(caller, seconds):
            await workers.result("take", seconds, caller=caller)
            ended.append(caller)
        many = [asyncio.ensure_future(run("many", 0.3)) for _ in range(3)]
        await asyncio.sleep(0.1)
        one = asyncio.ensure_future(run("one", 0.1))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="3 calls wait"): await workers.result("pid")
        await asyncio.gather(one, *many)
        await asyncio.sleep(0.1)
        assert not workers.running and not workers.turns and workers.idle == workers.all
        return ended
    assert with_workers(test, n=1, waiting=3) == ["many", "one", "many", "many"]


def test_a_call_waits_for_a_process_no_longer_than_it_may_run():
    async def test(workers):
        await workers.result("pid")
        first = asyncio.ensure_future(workers.result("take", 0.5))
        await asyncio.sleep(0.1)
        with pytest.raises(Busy, match="no worker was free within 0.1 seconds"):
            await workers.result("pid", budget=Budget(seconds=0.1))
        assert not workers.waiting and not first.done()
        await first
        return await workers.result("pid", budget=Budget(seconds=5))
    assert with_workers(test)


def test_a_caller_is_asked_after_each_pause_whether_it_is_still_there():
    async def test(workers):
        await workers.result("pid")
        found = []
        async with contextlib.aclosing(workers.call("loop", pause=0.02)) as parts:
            async for part in parts:
                found.append(part)
                if len(found) == 3: break
        assert found == [None] * 3 and await workers.result("count", 2) == 1 and workers.restarts == 0
    with_workers(test)


def test_what_cannot_be_made_is_said():
    workers = Workers(refuse)
    with pytest.raises(ValueError, match="cannot be made"): workers.ask_first("count", 1)
    workers.close()


def test_the_first_process_is_asked_before_the_loop_runs():
    workers = Workers(partial(Toy))
    assert workers.ask_first("count", 3) == 2
    workers.close()
