package audio

// oggTable is the table of oggChecksum.
func oggTable() *[256]uint32 {
	var table [256]uint32
	for i := range table {
		crc := uint32(i) << 24
		for range 8 {
			if crc&(1<<31) != 0 {
				crc = crc<<1 ^ 0x04c11db7
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return &table
}

// oggChecksum is the CRC of an Ogg page whose checksum field is zero (RFC 3533
// §6): polynomial 0x04C11DB7, neither reflected nor inverted, which hash/crc32
// does not offer.
func oggChecksum(table *[256]uint32, page []byte) uint32 {
	var crc uint32
	for _, x := range page {
		crc = crc<<8 ^ table[byte(crc>>24)^x]
	}
	return crc
}
