#!/bin/sh
# Makes speech.opus and babble.opus, the recordings the tests of this package
# hear. It needs espeak-ng, flite, sox and opus-tools.
#
# speech.opus is twelve utterances of seven synthetic voices, 1.5 s of silence
# around each. babble.opus is eight talkers reading different texts at once.
set -eu
out=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# say NAME ENGINE VOICE TEXT makes $tmp/NAME.wav: 16 kHz, peak at −6 dB.
say() {
	case $2 in
	flite) flite -voice "$3" -t "$4" -o "$tmp/raw.wav" ;;
	espeak) espeak-ng -v "$3" -w "$tmp/raw.wav" "$4" ;;
	esac
	sox "$tmp/raw.wav" -r 16000 -c 1 -b 16 "$tmp/$1.wav" gain -n -6
}

n=0
utter() {
	n=$((n + 1))
	say "u$n" "$1" "$2" "$3"
	sox "$tmp/u$n.wav" "$tmp/p$n.wav" pad 0 1.5
}
utter flite slt "Turn on the light in the kitchen."
utter espeak en-us "What is the weather like in Beijing tomorrow?"
utter flite rms "Stop."
utter espeak en-gb-x-rp "Set a timer for seven minutes, please."
utter flite awb "Play some quiet music in the living room."
utter espeak cmn "ni hao, jin tian tian qi zen me yang"
utter flite slt "How far is it from here to the station?"
utter espeak en-us "Yes, please."
utter flite rms "She sells sea shells by the sea shore."
utter espeak en-gb-x-rp "I think you should switch the heating off now."
utter flite awb "Tell me a story about a fox who was fond of figs."
utter espeak de "Wie spät ist es, und wann fährt der nächste Zug?"
sox -n -r 16000 -c 1 -b 16 "$tmp/p0.wav" trim 0 1.5
list=
i=0
while [ $i -le $n ]; do
	list="$list $tmp/p$i.wav"
	i=$((i + 1))
done
# shellcheck disable=SC2086
sox $list "$tmp/speech.wav"
opusenc --quiet --speech --bitrate 24 --framesize 20 --discard-comments "$tmp/speech.wav" "$out/speech.opus"

text1="When the sunlight strikes raindrops in the air, they act as a prism and form a rainbow. The rainbow is a division of white light into many beautiful colours."
text2="The north wind and the sun were disputing which was the stronger, when a traveller came along wrapped in a warm cloak. They agreed that the one who first succeeded should win."
text3="Please call Stella. Ask her to bring these things with her from the store: six spoons of fresh snow peas, five thick slabs of blue cheese, and maybe a snack for her brother Bob."
text4="There was once a young rat named Arthur, who never could make up his mind. Whenever his friends asked him if he would like to go out with them, he would only answer, I do not know."
say b1 flite slt "$text1 $text2"
say b2 flite rms "$text2 $text3"
say b3 flite awb "$text3 $text4"
say b4 espeak en-us "$text4 $text1"
say b5 espeak en-gb-x-rp "$text2 $text4"
say b6 espeak en-us+f3 "$text3 $text1"
say b7 espeak de "$text1 $text4"
say b8 flite slt "$text4 $text3"
sox -m "$tmp"/b[1-8].wav "$tmp/babble.wav" trim 1 12 gain -n -6
opusenc --quiet --speech --bitrate 24 --framesize 20 --discard-comments "$tmp/babble.wav" "$out/babble.opus"
