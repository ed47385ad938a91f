"""A calculator as an MCP server on standard input and output.

It needs nothing but Python and speaks the protocol itself, a line a message, as
a server written by hand does.
"""

import ast
import json
import operator
import sys

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}

TOOL = {
    "name": "calculator",
    "description": "Calculates the value of an expression, such as 2*(3+4).",
    "inputSchema": {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
}


def value(node):
    if isinstance(node, ast.Expression):
        return value(node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value(node.operand))
    raise ValueError("this is no arithmetic")


def call(arguments):
    try:
        result = value(ast.parse(arguments["expression"], mode="eval"))
        return {"content": [{"type": "text", "text": str(result)}], "isError": False}
    except (ValueError, SyntaxError, ZeroDivisionError) as e:
        return {"content": [{"type": "text", "text": str(e)}], "isError": True}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2024-11-05",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calculator", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return call(params["arguments"])
    return None


print("calculator is ready", file=sys.stderr)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    result = answer(message["method"], message.get("params"))
    if result is None:
        reply["error"] = {"code": -32601, "message": "unknown method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
