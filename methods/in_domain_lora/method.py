"""LoRA on the labelled items of a task, asked as the others will be (PRELUDE, 4 and C.1)."""

from upkeep.cell import Course, Method, Training
from upkeep.cell.finetuning import Stage, finetune
from upkeep.cell.samples import Material


class InDomainLora(Method):
    def train(self, training: Training) -> Course:
        return finetune(training, self.tools, Stage(Material.pairs, self.parameters))
