"""A stdio MCP server with one tool, in the manner of old ones: it knows three
requests and refuses everything else."""
import json
import sys

SCHEMA = {"type": "object", "properties": {"python_expression": {"type": "string"}}, "required": ["python_expression"]}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "Calculator", "version": "1.26.0"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "calculator", "description": "Calculate.", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        value = 1
        for factor in params["arguments"]["python_expression"].split("*"):
            value *= int(factor)
        text = json.dumps({"success": True, "result": value})
        return {"content": [{"type": "text", "text": text}], "isError": False}
    return None


print("Starting MCP server 'Calculator' with transport 'stdio'", file=sys.stderr)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params"))
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
