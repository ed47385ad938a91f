#!/bin/sh
# Makes golden.txt: AES-128-CTR as OpenSSL does it, from the initial counter
# block that a packet's header is. Run in this folder: ./golden.sh >golden.txt
echo '# Made by golden.sh with: openssl enc -aes-128-ctr -K <key> -iv <header>'
echo "# $(openssl version)"
echo '# name key header plaintext ciphertext'
vector() { # name key header bytes-of-plaintext
	plain=$(i=0; while [ $i -lt "$4" ]; do printf '%02x' $(((i * 37 + 11) % 256)); i=$((i + 1)); done)
	sealed=$(printf '%s' "$plain" | xxd -r -p | openssl enc -aes-128-ctr -K "$2" -iv "$3" | xxd -p | tr -d '\n')
	echo "$1 $2 $3 $plain $sealed"
}
vector sp800-38a 2b7e151628aed2a6abf7158809cf4f3c f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff 64
vector uplink-first 263094c3aa28cb42f3965a1020cb21a7 01000078ccba97200000000000000001 120
vector uplink-echo 263094c3aa28cb42f3965a1020cb21a7 01000059ccba97200000ea6000000102 89
vector downlink 263094c3aa28cb42f3965a1020cb21a7 018000b4ccba97200000003c00000001 180
vector one-byte 263094c3aa28cb42f3965a1020cb21a7 01000001ccba97200000000000000009 1
vector one-block 263094c3aa28cb42f3965a1020cb21a7 01000010ccba97200000000000000009 16
vector block-and-byte 263094c3aa28cb42f3965a1020cb21a7 01000011ccba97200000000000000009 17
vector largest 000102030405060708090a0b0c0d0e0f 018005680011223300000e1000000031 1384
vector carry-32 263094c3aa28cb42f3965a1020cb21a7 01000050ccba972000000000ffffffff 80
vector carry-32-later 263094c3aa28cb42f3965a1020cb21a7 01000050ccba972000000007fffffffd 80
vector carry-64 263094c3aa28cb42f3965a1020cb21a7 01000050ccba9720ffffffffffffffff 80
vector carry-96 263094c3aa28cb42f3965a1020cb21a7 01000050fffffffffffffffffffffffe 80
vector wrap-128 263094c3aa28cb42f3965a1020cb21a7 ffffffffffffffffffffffffffffffff 80
