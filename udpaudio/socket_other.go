//go:build !linux

package udpaudio

// logSocket logs that the server listens.
func (s *Server) logSocket() {
	s.log.Info("udp audio listening", "addr", s.conn.LocalAddr())
}
