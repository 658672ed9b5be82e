"""The lab: inventory, boards, instruments, flashing, campaigns."""
