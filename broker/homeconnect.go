package broker

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// maxHomeClientID bounds a home client's id in bytes.
const maxHomeClientID = 256

// A homeConnect is what a home client's CONNECT packet asks for, judged and
// within the limits. It is over when the client has its session.
type homeConnect struct {
	key    sessionKey
	clean  bool
	expiry time.Duration
	will   *will
	v5     bool
	answer packets.Properties // of CONNACK, MQTT 5
}

// judgeHome decides whether a CONNECT packet that names a user may enter as a
// home client of that user.
func judgeHome(pk *packets.Packet, u *User, limits *HomeLimits) (*homeConnect, rules, *refusal) {
	var none rules
	if err := u.checkPassword(pk.Connect.Password); err != nil {
		return nil, none, &refusal{why: RefusedCredentials, v3: 4, v5: 0x86, err: err}
	}
	if m := pk.Properties.AuthenticationMethod; m != "" {
		return nil, none, &refusal{why: RefusedCredentials, v3: 4, v5: 0x8C,
			err: fmt.Errorf("MQTT 5 authentication method %.32q; none is supported", m)}
	}
	id := pk.Connect.ClientIdentifier
	in := &homeConnect{clean: pk.Connect.Clean, v5: pk.ProtocolVersion == 5}
	switch {
	case len(id) > maxHomeClientID:
		return nil, none, &refusal{why: RefusedClientID, v3: 2, v5: 0x85,
			err: fmt.Errorf("client id of %d bytes; at most %d are allowed", len(id), maxHomeClientID)}
	case id == "" && !in.clean && !in.v5:
		return nil, none, &refusal{why: RefusedClientID, v3: 2, v5: 0x85,
			err: errors.New("no client id for a session that is to be kept; give it one, or let it ask for a clean session")}
	case id == "":
		id = "auto-" + rand.Text()
		in.answer.AssignedClientID = id
	}
	in.key = sessionKey{u.Name, id}
	in.setExpiry(pk, limits.SessionExpiry)
	r := rulesFor(u, id)
	if refused := in.setWill(pk, &r); refused != nil {
		return nil, none, refused
	}
	in.answer.ReceiveMaximum = uint16(limits.MaxInflight)
	in.answer.MaximumPacketSize = uint32(limits.MaxPacket)
	in.answer.SharedSubAvailableFlag = true // and 0: there are none
	return in, r, nil
}

// setExpiry works out how long the session outlives its connection. MQTT 3.1.1
// knows clean sessions and others; MQTT 5 says for how long, and is told if it is
// for less.
func (in *homeConnect) setExpiry(pk *packets.Packet, limit time.Duration) {
	if !in.v5 {
		if !in.clean {
			in.expiry = limit
		}
		return
	}
	in.expiry = time.Duration(pk.Properties.SessionExpiryInterval) * time.Second
	if in.expiry > limit {
		in.expiry = limit
		in.answer.SessionExpiryInterval = uint32(min(int64(limit/time.Second), math.MaxUint32))
		in.answer.SessionExpiryIntervalFlag = true
	}
}

// setWill keeps the will, if the client may publish there.
func (in *homeConnect) setWill(pk *packets.Packet, r *rules) *refusal {
	c := &pk.Connect
	if !c.WillFlag {
		return nil
	}
	if !validTopic(c.WillTopic) || !r.mayPublish(c.WillTopic) {
		return &refusal{why: RefusedWill, v3: 5, v5: 0x87,
			err: fmt.Errorf("user %s may not publish to the will's topic %.64q", in.key.user, c.WillTopic)}
	}
	p := c.WillProperties
	in.will = &will{
		delay:  time.Duration(p.WillDelayInterval) * time.Second,
		expiry: time.Duration(p.MessageExpiryInterval) * time.Second,
		// What is kept is a copy: the packet's bytes hold the password, too.
		msg: &message{topic: strings.Clone(c.WillTopic), payload: bytes.Clone(c.WillPayload), qos: c.WillQos,
			retain: c.WillRetain, size: len(c.WillTopic) + len(c.WillPayload)},
	}
	p = p.Copy(false)
	p.MessageExpiryInterval = 0 // counts from when it is published
	p.ContentType, p.ResponseTopic = strings.Clone(p.ContentType), strings.Clone(p.ResponseTopic)
	for i := range p.User {
		p.User[i].Key, p.User[i].Val = strings.Clone(p.User[i].Key), strings.Clone(p.User[i].Val)
	}
	in.will.msg.setProperties(&p, time.Time{})
	return nil
}

// connack is the packet that lets the client in.
func (in *homeConnect) connack(present bool) []byte {
	pk := packets.Packet{
		FixedHeader:    packets.FixedHeader{Type: packets.Connack},
		SessionPresent: present,
		Properties:     in.answer,
		Mods:           packets.Mods{AllowResponseInfo: true},
	}
	if in.v5 {
		pk.ProtocolVersion = 5
	}
	var b bytes.Buffer
	_ = pk.ConnackEncode(&b) // v2.7.9 never returns an error
	return b.Bytes()
}
