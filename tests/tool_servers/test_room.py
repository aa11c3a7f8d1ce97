"""Places: taken, refused, waited for, given back."""

import asyncio

import pytest
from starlette.exceptions import HTTPException

from agar.tool_servers.meter import Meter
from agar.tool_servers.room import Room


async def test_places_are_taken_until_there_are_none_and_come_back_whatever_happens():
    meter = Meter(dict)
    room = Room(2, meter)
    async with room.place("/a"), room.place("/a"):
        assert b"agar_tool_calls_in_flight 2.0" in meter.text()
        with pytest.raises(HTTPException) as refused:
            async with room.place("/b"):
                pass
        assert (refused.value.status_code, refused.value.headers) == (429, {"retry-after": "1"})
    with pytest.raises(KeyError):
        async with room.place("/a"):
            raise KeyError
    assert b"agar_tool_calls_in_flight 0.0" in meter.text()
    assert b'agar_tool_busy_total{route="/b"} 1.0' in meter.text()
    async with room.place("/a"), room.place("/a"):
        pass


async def test_who_has_patience_gets_the_next_place_before_who_has_none():
    room = Room(1, Meter(dict))
    got = asyncio.Event()

    async def patient():
        async with room.place("/a", patience_s=30):
            got.set()

    async with room.place("/a"):
        waiting = asyncio.create_task(patient())
        await asyncio.sleep(0)
        with pytest.raises(HTTPException):
            async with room.place("/a", patience_s=0.01):
                pass
        assert not got.is_set()
    with pytest.raises(HTTPException):
        async with room.place("/a"):
            pass
    await waiting
    assert got.is_set()
