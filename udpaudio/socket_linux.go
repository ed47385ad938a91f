package udpaudio

import "syscall"

// logSocket logs that the server listens, and what the kernel granted of the
// buffers asked for. A socket that is not the kernel's has none.
func (s *Server) logSocket() {
	log := s.log.With("addr", s.conn.LocalAddr())
	sc, ok := s.conn.(syscall.Conn)
	if !ok {
		log.Info("udp audio listening")
		return
	}
	received, sent := bufferSize(sc, syscall.SO_RCVBUF), bufferSize(sc, syscall.SO_SNDBUF)
	log.Info("udp audio listening", "receive_buffer_bytes", received, "send_buffer_bytes", sent)
	if received < socketBuffer {
		log.Warn("udp receive buffer is small, bursts will lose packets; raise net.core.rmem_max",
			"receive_buffer_bytes", received, "wanted_bytes", socketBuffer)
	}
}

// bufferSize returns the size of a socket buffer in bytes as a program counts
// it, half of what the kernel reports (socket(7)), or 0 if it does not tell.
func bufferSize(sc syscall.Conn, option int) int {
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	size := 0
	err = raw.Control(func(fd uintptr) {
		if n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option); err == nil {
			size = n / 2
		}
	})
	if err != nil {
		return 0
	}
	return size
}
