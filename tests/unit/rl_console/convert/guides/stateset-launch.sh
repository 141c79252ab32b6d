MODEL_NAME="openai/gpt-oss-120b" \
NUM_EPISODES=2000 \
BATCH_SIZE=2 \
LEARNING_RATE=3e-6 \
./scripts/train_trl_grpo.sh
