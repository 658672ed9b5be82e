"""One packet's life: when it was sent, where it waited, what switches did to it, what its answers caused."""
