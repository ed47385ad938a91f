package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"parley/mcp"
)

// methodInitialize is the request whose answer says who the server is.
const methodInitialize = "initialize"

// A wire is the WebSocket of one connection as the SDK's transport and its
// connection in one: a message is a JSON-RPC message. Contexts of single messages
// never reach the socket, because ending one would break the connection off.
type wire struct {
	c  *conn
	ws *websocket.Conn

	rate    *rate.Limiter
	rubbish int // messages that were no JSON-RPC; the reader's
	// greeting is the id of the initialize request under way; answered, its
	// server's name is in c.
	greeting atomic.Pointer[jsonrpc.ID]
}

func newWire(c *conn, ws *websocket.Conn) *wire {
	ws.SetReadLimit(maxMessage)
	return &wire{c: c, ws: ws, rate: rate.NewLimiter(messageRate, messageBurst)}
}

// Connect implements [sdk.Transport].
func (w *wire) Connect(context.Context) (sdk.Connection, error) { return w, nil }

// SessionID implements [sdk.Connection].
func (w *wire) SessionID() string { return "" }

// Close implements [sdk.Connection]. The peer is told why the connection ends, and
// Read ends when it has noticed, or 5 seconds later.
func (w *wire) Close() error {
	w.c.hangUp()
	return nil
}

// Read implements [sdk.Connection]. It passes over what is no JSON-RPC message, in
// a text frame or a binary one, and ends when the socket is closed.
func (w *wire) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if err := w.rate.Wait(w.c.ctx); err != nil && w.c.ctx.Err() == nil {
			return nil, err
		}
		_, data, err := w.ws.Read(context.Background())
		if err != nil {
			w.c.broke(err)
			return nil, err
		}
		msg, err := mcp.DecodeMessage(data)
		if err != nil {
			w.c.p.cfg.Counters.Rubbish.Add(1)
			if w.rubbish++; w.rubbish > maxUnreadable {
				err = &ending{websocket.StatusPolicyViolation, fmt.Sprintf("more than %d messages that are no JSON-RPC", maxUnreadable)}
				w.c.end(err)
				return nil, err
			}
			continue
		}
		w.look(msg)
		return msg, nil
	}
}

// Write implements [sdk.Connection]. It returns within 10 seconds; a message that
// cannot be sent by then ends the connection.
func (w *wire) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.Method == methodInitialize {
		w.greeting.Store(&req.ID)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := w.ws.Write(ctx, websocket.MessageText, data); err != nil {
		if ctx.Err() != nil {
			w.c.end(&ending{websocket.StatusPolicyViolation, fmt.Sprintf("read nothing for %v", writeTimeout)})
		}
		return err
	}
	return nil
}

// look notes the server's name from its answer to initialize.
func (w *wire) look(msg jsonrpc.Message) {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return
	}
	if id := w.greeting.Load(); id == nil || *id != resp.ID {
		return
	}
	var result struct {
		ServerInfo struct {
			Name string `json:"name"`
		} `json:"serverInfo"`
	}
	_ = json.Unmarshal(resp.Result, &result) // what cannot be read stays empty
	name := result.ServerInfo.Name
	name = strings.ToValidUTF8(name[:min(len(name), maxServerName)], "")
	w.c.server.Store(&name)
}
