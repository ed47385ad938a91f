"""A pipe as users have it, on the Python library they have it on: every message of
the WebSocket is a line for the program, every line of the program a message, its
line feed included. Usage: pipe.py URL PROGRAM [ARGUMENT...]"""
import asyncio
import subprocess
import sys

import websockets


async def main():
    async with websockets.connect(sys.argv[1]) as socket:
        program = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        async def down():
            while True:
                program.stdin.write(await socket.recv() + "\n")
                program.stdin.flush()

        async def up():
            while line := await asyncio.to_thread(program.stdout.readline):
                await socket.send(line)

        try:
            await asyncio.gather(down(), up())
        except websockets.ConnectionClosed as end:
            print("closed:", end.code, end.reason)
        finally:
            program.terminate()
            program.wait()


asyncio.run(main())
