# A program that computes through an MPS server, and the server's part as well: it writes the lines that the server
# of driver 580 would. The first word says what this client is like.
role=$1
log=$CUDA_MPS_LOG_DIRECTORY/server.log
server() { printf '[%s Server   615] %s\n' "$(date '+%Y-%m-%d %H:%M:%S.%3N')" "$1" >> "$log"; }
torn_down() { grep -o "Client {PID: [0-9]*, Context ID: 1} on device 0 to be torn down" "$log" | grep -o "PID: [0-9]*"; }

touch "$log"
# A server that recovers takes nobody new until the last of those who lost their GPU is gone.
for pid in $(torn_down | cut -d' ' -f2); do
    if [ -e "/proc/$pid" ] && ! grep -q "Client process $pid disconnected" "$log"; then
        server "Server teardown in progress. Refusing to accept new client {PID: $$, Context ID: 0}"
        echo "CUDA error: the server refused try $YARD_ATTEMPT"
        exit 1
    fi
done
server "Client {PID: $$, Context ID: 0} connected"
echo "$role, try $YARD_ATTEMPT"

case $role-$YARD_ATTEMPT in
bad-*)
    until [ "$(grep -c "} connected" "$log")" -ge "$2" ]; do sleep 0.05; done
    # A server is not broken by whoever has only just come; by now the yard has seen them all.
    sleep 1
    server "Client {PID: $$, Context: 1} encountered a fatal GPU error."
    server "Server is handling a fatal GPU error."
    for pid in $(grep -o "PID: [0-9]*, Context ID: 0} connected" "$log" | grep -o "[0-9]* *," | tr -d ' ,'); do
        server "Client {PID: $pid, Context ID: 1} on device 0 to be torn down"
    done
    server "Client process $$ disconnected"
    exit 1
    ;;
good-1)
    until torn_down | grep -qx "PID: $$"; do sleep 0.05; done
    server "Client process $$ disconnected"
    exit 1
    ;;
idle-1)
    # It waits for data, and will not touch its GPU for a long time.
    sleep 300
    ;;
esac
sleep 0.5
