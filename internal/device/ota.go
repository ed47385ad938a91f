package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Constants of the firmware's boot.
const (
	activationTries   = 10
	activationPending = 3 * time.Second  // after 202
	activationRefused = 10 * time.Second // after anything else
	maxReply          = 64 << 10         // bytes of an OTA reply
)

// ErrOTA is wrapped by the errors of asking the OTA URL.
var ErrOTA = errors.New("device: OTA")

// An otaReply is what the firmware reads of an OTA reply.
type otaReply struct {
	Activation *struct {
		Message, Code, Challenge string
	} `json:"activation"`
	MQTT map[string]any `json:"mqtt"`
}

// boot asks for the configuration until no activation is demanded, and returns
// the MQTT credentials of the last reply over those it had.
func (d *Device) boot(ctx context.Context) (Credentials, error) {
	for {
		r, err := d.askOTA(ctx)
		if err != nil {
			return Credentials{}, err
		}
		if r.Activation == nil || r.Activation.Code == "" && r.Activation.Challenge == "" {
			d.mu.Lock()
			c := d.creds
			d.mu.Unlock()
			if err := c.merge(r.MQTT); err != nil {
				return Credentials{}, err
			}
			if c.Endpoint == "" {
				return Credentials{}, fmt.Errorf("%w: the reply of %s has no mqtt.endpoint", ErrOTA, d.opts.OTA)
			}
			return c, nil
		}
		d.emit(Event{Kind: Message, Type: "activation", Detail: r.Activation.Code, Text: r.Activation.Message})
		if err := d.activate(ctx); err != nil {
			return Credentials{}, err
		}
	}
}

func (d *Device) askOTA(ctx context.Context) (otaReply, error) {
	body := `{"version":2,"language":"en-US","flash_size":16777216,"minimum_free_heap_size":"8318916","mac_address":"` +
		string(d.opts.ID) + `","uuid":"` + d.opts.ClientUUID + `","chip_model_name":"esp32s3","application":{"name":"xiaozhi","version":"` +
		d.traits.version + `","elf_sha256":""},"ota":{"label":"ota_0"},"board":{"type":"` + boardName + `","name":"` + boardName +
		`","ssid":"simulated","rssi":-50,"channel":1,"ip":"127.0.0.1","mac":"` + string(d.opts.ID) + `"}}`
	status, reply, err := d.request(ctx, d.opts.OTA, body)
	if err != nil {
		return otaReply{}, err
	}
	if status != http.StatusOK {
		return otaReply{}, fmt.Errorf("%w: %s answered %d; firmware accepts only 200", ErrOTA, d.opts.OTA, status)
	}
	var r otaReply
	if err := json.Unmarshal(reply, &r); err != nil {
		return otaReply{}, fmt.Errorf("%w: the reply of %s is no JSON object: %w", ErrOTA, d.opts.OTA, err)
	}
	return r, nil
}

// activate polls until the server knows the device, ten times at most.
func (d *Device) activate(ctx context.Context) error {
	target := d.opts.OTA
	if !strings.HasSuffix(target, "/") {
		target += "/"
	}
	target += "activate"
	for range activationTries {
		status, _, err := d.request(ctx, target, "{}")
		if err == nil && status == http.StatusOK {
			return nil
		}
		wait := activationRefused
		if err == nil && status == http.StatusAccepted {
			wait = activationPending
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: waiting for activation: %w", ErrOTA, context.Cause(ctx))
		}
	}
	return nil
}

// request posts body with the headers of a device and returns status and reply.
func (d *Device) request(ctx context.Context, target, body string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrOTA, err)
	}
	r.Header.Set("Activation-Version", "1")
	r.Header.Set("Device-Id", string(d.opts.ID))
	r.Header.Set("Client-Id", d.opts.ClientUUID)
	r.Header.Set("User-Agent", boardName+"/"+d.traits.version)
	r.Header.Set("Accept-Language", "en-US")
	r.Header.Set("Content-Type", "application/json")
	resp, err := d.opts.HTTP.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrOTA, err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: reply of %s: %w", ErrOTA, target, err)
	}
	return resp.StatusCode, reply, nil
}

// maxNVSKey is the longest member name flash storage takes; a longer one reboots
// the firmware for ever.
const maxNVSKey = 15

// merge stores the members of the reply's mqtt section: strings and numbers as
// they are, other types ignored, and what is absent kept.
func (c *Credentials) merge(section map[string]any) error {
	for name, v := range section {
		if len(name) > maxNVSKey {
			return fmt.Errorf("%w: mqtt.%s has more than %d characters, which sends firmware into a boot loop", ErrOTA, name, maxNVSKey)
		}
		s, isText := v.(string)
		n, isNumber := v.(float64)
		switch {
		case name == "endpoint" && isText:
			c.Endpoint = s
		case name == "client_id" && isText:
			c.ClientID = s
		case name == "username" && isText:
			c.Username = s
		case name == "password" && isText:
			c.Password = s
		case name == "publish_topic" && isText:
			c.PublishTopic = s
		case name == "subscribe_topic" && isText:
			c.SubscribeTopic = s
		case name == "keepalive" && isNumber:
			c.Keepalive = int(n)
		}
	}
	if _, port, found := strings.Cut(c.Endpoint, ":"); found {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%w: mqtt.endpoint %q: firmware reads a port after the first colon and crashes on this one", ErrOTA, c.Endpoint)
		}
	}
	return nil
}
