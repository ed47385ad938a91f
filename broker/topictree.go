package broker

import "strings"

// A node is one level of a topic or filter, in the tree of all that are in use:
// who subscribes to it, and what is retained there. A path is a topic or filter
// relative to the node. The tree has one lock, that of its hub.
type node struct {
	next      map[string]*node
	clients   map[*homeSession]subscription
	listeners []*listener
	retained  *message
}

// A subscription is what a home client asked for with a filter (MQTT 5, section
// 3.8.3.1).
type subscription struct {
	id                uint32 // its identifier, 0 for none
	qos               byte
	noLocal           bool
	retainAsPublished bool
}

// at is the node of a path, made if it is not there. Who leaves it empty must
// prune.
func (n *node) at(path string) *node {
	for more := true; more; {
		var level string
		level, path, more = strings.Cut(path, "/")
		child := n.next[level]
		if child == nil {
			if n.next == nil {
				n.next = make(map[string]*node)
			}
			child = new(node)
			// The key outlives the packet that the path is a part of.
			n.next[strings.Clone(level)] = child
		}
		n = child
	}
	return n
}

// prune removes the nodes of a path that hold nothing.
func (n *node) prune(path string) {
	level, rest, more := strings.Cut(path, "/")
	child := n.next[level]
	if child == nil {
		return
	}
	if more {
		child.prune(rest)
	}
	if len(child.next)+len(child.clients)+len(child.listeners) == 0 && child.retained == nil {
		delete(n.next, level)
	}
}

// match visits the nodes of all filters in use that match a topic.
func (n *node) match(topic string, visit func(*node)) {
	if all := n.next["#"]; all != nil {
		visit(all)
	}
	level, rest, more := strings.Cut(topic, "/")
	for _, key := range [...]string{level, "+"} {
		child := n.next[key]
		switch {
		case child == nil:
		case more:
			child.match(rest, visit)
		default:
			visit(child)
			if all := child.next["#"]; all != nil { // "a/#" means "a", too
				visit(all)
			}
		}
	}
}

// matchRetained visits the retained messages whose topics match a filter.
func (n *node) matchRetained(filter string, visit func(*message)) {
	level, rest, more := strings.Cut(filter, "/")
	descend := func(child *node) {
		switch {
		case child == nil:
		case more:
			child.matchRetained(rest, visit)
		case child.retained != nil:
			visit(child.retained)
		}
	}
	switch level {
	case "#":
		n.allRetained(visit)
	case "+":
		for _, child := range n.next {
			descend(child)
		}
	default:
		descend(n.next[level])
	}
}

func (n *node) allRetained(visit func(*message)) {
	if n.retained != nil {
		visit(n.retained)
	}
	for _, child := range n.next {
		child.allRetained(visit)
	}
}
