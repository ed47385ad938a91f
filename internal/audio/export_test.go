package audio

// Hold takes a slot of the pool until the returned function is called.
func Hold(p *EncoderPool) (release func()) {
	p.slots <- struct{}{}
	return func() { <-p.slots }
}
