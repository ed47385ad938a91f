package main

import (
	"context"
	"crypto/rand"
	"iter"
	"net"
	"strconv"

	"parley/internal/config"
	"parley/internal/protocol"
	"parley/internal/vision"
	"parley/mcp"
	"parley/pipeline"
)

// eyes look at the pictures of devices with the model of their role that can.
type eyes struct {
	cfg    config.Vision
	roles  *roles
	tokens []byte // signs the tokens of devices, new with each start: they are told theirs at every connection
}

func newEyes(cfg config.Vision, r *roles) *eyes {
	e := &eyes{cfg: cfg, roles: r, tokens: make([]byte, 32)}
	rand.Read(e.tokens) // never fails: crypto/rand
	return e
}

// Explain implements [vision.Explainer].
func (e *eyes) Explain(ctx context.Context, id protocol.DeviceID, question string, p vision.Picture) (string, error) {
	m := e.roles.sight(string(id))
	if m == nil {
		return "", errBlind
	}
	return pipeline.Describe(ctx, m, e.cfg.Prompt, question, pipeline.Image{MIMEType: p.MIMEType, Data: p.Data})
}

// of is where a device sends its pictures: nowhere if nobody in its role can
// look at them. host is the one it knows this server by.
func (e *eyes) of(id protocol.DeviceID, host string, port int) mcp.Vision {
	if e.roles.sight(string(id)) == nil {
		return mcp.Vision{}
	}
	url := e.cfg.URL
	if url == "" {
		url = "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + vision.Path
	}
	return mcp.Vision{URL: url, Token: vision.Token(e.tokens, id)}
}

// strict is a model whose service knows little of JSON schema.
type strict struct{ pipeline.Model }

// Chat implements [pipeline.Model].
func (m strict) Chat(ctx context.Context, req *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	reduced := *req
	reduced.Tools = make([]pipeline.Tool, len(req.Tools))
	for i, t := range req.Tools {
		t.Schema = mcp.StrictSchema(t.Schema)
		reduced.Tools[i] = t
	}
	return m.Model.Chat(ctx, &reduced)
}
