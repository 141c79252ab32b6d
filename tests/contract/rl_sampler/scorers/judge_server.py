"""An OpenAI-compatible server for the tests: ``python judge_server.py PORT [TOKEN]``.

Its models: ``steady`` gives 0.75, ``vague`` no score, ``broken`` fails, ``busy`` has no time,
``strict`` takes no request, ``slow`` never answers, ``chatty`` answers no JSON, ``echo`` what it
was told last; ``shy`` answers a probe alone; ``curious``, ``silent`` and
``hangup`` play users.
"""

from __future__ import annotations

import asyncio
import os
import sys

from aiohttp import web

STATUS = {"broken": 500, "busy": 429, "strict": 400}
SAYS = {
    "curious": "Go on.",
    "silent": " ",
    "hangup": "Thanks. <end>",
    "steady": "Half of it is right. <score>1</score>, no: <score> 0.75 </score>",
    "vague": "Good!",
}
TOKEN = sys.argv[2] if len(sys.argv) > 2 else ""


async def complete(request: web.Request) -> web.Response:
    if TOKEN and request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return web.Response(status=401, text="who are you?")
    body = await request.json()
    model, prompt = body["model"], body["messages"][-1]["content"]
    if model == "slow" or (model == "shy" and prompt != "Say yes."):
        await asyncio.sleep(1000)
    if model in STATUS:
        return web.Response(status=STATUS[model], text="no")
    if model == "chatty":
        return web.Response(text="hello there")
    message = {"role": "assistant", "content": SAYS.get(model, prompt)}
    usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 5, "total_tokens": 9}
    return web.json_response({"id": "1", "choices": [{"message": message}], "usage": usage})


def main() -> None:
    application = web.Application()
    application.router.add_post("/v1/chat/completions", complete)
    host = os.environ.get("HOST", "127.0.0.1")
    web.run_app(application, host=host, port=int(sys.argv[1]), print=None, access_log=None)


if __name__ == "__main__":
    main()
