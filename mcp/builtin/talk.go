package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

func (t *Tools) talkTools() []tool {
	roles := ""
	if len(t.cfg.Roles) > 0 {
		roles = " Roles: " + strings.Join(t.cfg.Roles, ", ") + "."
	}
	return []tool{{
		name:        "end_conversation",
		description: "Ends the conversation after your answer. Use it when the user says goodbye or wants no more.",
		schema:      json.RawMessage(`{"type":"object","properties":{}}`),
		run:         t.endConversation,
	}, {
		name:        "switch_role",
		description: "Changes who the user talks to, from the next conversation on." + roles,
		schema: json.RawMessage(`{"type":"object","properties":{
			"role":{"type":"string"}},"required":["role"]}`),
		run: t.switchRole,
	}}
}

func (t *Tools) endConversation(_ context.Context, who caller, _ arguments) (string, error) {
	if err := t.house.EndConversation(who.device); err != nil {
		return "", fmt.Errorf("the conversation could not be ended: %w", err)
	}
	return "The conversation ends when you have answered. Say goodbye in a few words.", nil
}

func (t *Tools) switchRole(_ context.Context, who caller, args arguments) (string, error) {
	name, err := args.text("role", 200)
	if err != nil {
		return "", err
	}
	roles := t.house.Roles(who.device)
	i := slices.IndexFunc(roles, func(r string) bool { return strings.EqualFold(r, name) })
	if i < 0 {
		return "", fmt.Errorf("there is no role %q; there are %s", clip(name, 40), strings.Join(roles, ", "))
	}
	// Also where it is the conversation's own: the user may have chosen another
	// one before, and changed their mind.
	if err := t.house.SwitchRole(who.device, roles[i]); err != nil {
		return "", fmt.Errorf("the role could not be changed: %w", err)
	}
	if roles[i] == who.role {
		return fmt.Sprintf("The role is %s already.", roles[i]), nil
	}
	t.log.Info("role switched", "device", string(who.device), "role", roles[i])
	return fmt.Sprintf("The role is %s from the next conversation on.", roles[i]), nil
}
