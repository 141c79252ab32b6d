#!/bin/sh
mkdir -p /logs/verifier
if [ "$(cat /app/product.txt)" = 391 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
