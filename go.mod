module parley

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/eclipse/paho.mqtt.golang v1.5.1 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/hraban/opus v0.0.0-20260708213942-bde8e4304501 // indirect
	github.com/mochi-mqtt/server/v2 v2.7.9 // indirect
	github.com/modelcontextprotocol/go-sdk v1.8.0 // indirect
	github.com/pion/randutil v0.1.0 // indirect
	github.com/pion/rtp v1.10.6 // indirect
	github.com/pion/webrtc/v4 v4.2.26 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/rs/xid v1.4.0 // indirect
	github.com/sashabaranov/go-openai v1.43.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
