// Turns blocks into bursts on the read address channel, in turn among the inputs that have room for a burst.
//
// Of each block the last five bytes of contents and type are asked for first (the restart count tells where the
// entries end, the type whether we can read them), then the whole block with its trailer. Every burst stays within
// 128 bytes, so none crosses a 4 KiB border. What was asked is queued for read_return; answers come in order.
module burst_issuer #(
    parameter int N = 4
) (
    input  logic         clk,
    input  logic         reset,
    input  logic         halt,
    output logic         idle,
    // descriptors to read for the walker; they go first
    input  logic         request_valid,
    output logic         request_ready,
    input  logic [ 28:0] request_word,
    input  logic         request_is_table,
    // blocks to read
    input  logic [N-1:0] queue_valid,
    output logic [  3:0] queue_select,
    input  logic [ 31:0] queue_address,
    input  logic [ 23:0] queue_length,
    input  logic         queue_end,
    output logic [N-1:0] queue_pop,
    // words taken from each input's queue of read data
    input  logic [N-1:0] word_taken,
    // read address channel
    output logic         ar_valid,
    input  logic         ar_ready,
    output logic [ 31:0] ar_address,
    output logic [  3:0] ar_beats_less_one,
    // what was asked, in order
    output logic         asked_valid,
    output logic [ 39:0] asked,
    input  logic         asked_ready
);
  localparam logic [1:0] KIND_DESCRIPTOR = 2'd0, KIND_TAIL = 2'd1, KIND_BODY = 2'd2, KIND_END = 2'd3;
  localparam int QUEUE_WORDS = 512;

  localparam logic [2:0] PICK = 3'd0, READ = 3'd1, BEGIN = 3'd2, SIZE = 3'd3, ISSUE = 3'd4, NEXT = 3'd5;
  logic [2:0] state;
  logic [3:0] current;
  logic [1:0] kind;
  logic first, last, sent, told;
  logic [4:0] beats;
  logic [24:0] extent;

  // Transfers under way, per input.
  logic [N-1:0] active;
  logic [15:0] active_wide;
  logic [N-1:0] current_one;
  logic in_body[16];
  logic untouched[16];
  logic [28:0] next_word[16];
  logic [21:0] words_left[16];

  logic at_body, at_first;
  logic [28:0] at_word;
  logic [21:0] at_left;
  logic [31:0] at_address;
  logic [23:0] at_length;
  logic at_end;
  logic [31:0] tail_address;
  logic [24:0] end_position;

  // Room: words that are neither in the input's queue nor on their way to it.
  logic [N-1:0] room, eligible, above, choice;
  logic [4:0] reserve;
  logic reserving;
  logic [4:0] to_border;

  assign active_wide = 16'(active);
  always_comb for (int i = 0; i < N; i++) current_one[i] = current == 4'(i);
  assign eligible = room & (active | queue_valid);
  assign queue_select = current;
  assign to_border = 5'd16 - {1'b0, at_word[3:0]};
  assign idle = state == PICK && !ar_valid;

  // Round robin: the first eligible input above the last one served, else the first of all.
  always_comb begin
    for (int i = 0; i < N; i++) above[i] = eligible[i] && 4'(i) > current;
    choice = above != '0 ? above & (~above + 1'b1) : eligible & (~eligible + 1'b1);
  end

  for (genvar i = 0; i < N; i++) begin : g_room
    logic [9:0] free;
    always_ff @(posedge clk) begin
      if (reset) begin
        free    <= 10'(QUEUE_WORDS);
        room[i] <= 1'b0;
      end else begin
        free    <= free - (reserving && current == 4'(i) ? {5'b0, reserve} : 10'd0) + {9'b0, word_taken[i]};
        room[i] <= free > 10'd16 && !(reserving && current == 4'(i));
      end
    end
  end

  assign reserving = state == NEXT && kind != KIND_DESCRIPTOR;
  assign reserve = kind == KIND_BODY ? beats : {4'b0, kind == KIND_END || last};
  assign request_ready = state == NEXT && kind == KIND_DESCRIPTOR;
  assign asked_valid = state == ISSUE && !told;
  assign asked = {extent, last, first, beats[3:0], kind == KIND_DESCRIPTOR ? 4'd15 : current, kind, at_address[2:0]};

  always_comb begin
    for (int i = 0; i < N; i++)
      queue_pop[i] = state == NEXT && current == 4'(i) && (kind == KIND_END || (kind == KIND_BODY && last));
  end

  always_ff @(posedge clk) begin
    if (state == NEXT && kind != KIND_DESCRIPTOR) begin
      in_body[current]    <= kind == KIND_BODY || last;
      untouched[current]  <= kind == KIND_TAIL && last;
      next_word[current]  <= kind == KIND_TAIL && last ? at_address[31:3] : at_word + {24'b0, beats};
      words_left[current] <= kind == KIND_TAIL && last ? end_position[24:3] : at_left - {17'b0, beats};
    end
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      state    <= PICK;
      current  <= 4'd0;
      ar_valid <= 1'b0;
      active   <= '0;
    end else begin
      if (ar_ready) ar_valid <= 1'b0;
      unique case (state)
        PICK: begin
          kind       <= KIND_DESCRIPTOR;
          first      <= 1'b1;
          last       <= 1'b1;
          sent       <= 1'b0;
          told       <= 1'b0;
          beats      <= request_is_table ? 5'd4 : 5'd2;
          at_word    <= request_word;
          if (!halt) begin
            if (request_valid) begin
              at_address <= 32'd0;
              // Descriptors are eight-byte aligned; one that straddles a border would cost a second burst.
              state <= SIZE;
            end else if (eligible != '0) begin
              for (int i = 0; i < N; i++) if (choice[i]) current <= 4'(i);
              state <= READ;
            end
          end
        end
        READ: begin
          at_address <= queue_address;
          at_length  <= queue_length;
          at_end     <= queue_end;
          at_body    <= in_body[current];
          at_first   <= untouched[current];
          at_word    <= next_word[current];
          at_left    <= words_left[current];
          state      <= BEGIN;
        end
        BEGIN: begin
          tail_address <= at_address + {8'b0, at_length} - 32'd4;
          end_position <= {22'b0, at_address[2:0]} + {1'b0, at_length} + 25'd12;
          kind         <= at_end ? KIND_END : active_wide[current] && at_body ? KIND_BODY : KIND_TAIL;
          state        <= SIZE;
        end
        SIZE: begin
          if (kind == KIND_TAIL && !active_wide[current]) begin
            // Five bytes: two words if they begin beyond lane 3.
            at_word <= tail_address[31:3];
            at_left <= tail_address[2:0] > 3'd3 ? 22'd2 : 22'd1;
            first   <= 1'b1;
          end else first <= kind == KIND_BODY ? at_first : kind == KIND_DESCRIPTOR;
          if (kind != KIND_DESCRIPTOR) active <= active | current_one;
          state <= kind == KIND_TAIL && !active_wide[current] ? SIZE : ISSUE;
          if (kind == KIND_END) begin
            beats <= 5'd0;
            last  <= 1'b1;
            sent  <= 1'b1;
          end else if (kind != KIND_DESCRIPTOR) begin
            beats <= {17'b0, to_border} < at_left ? to_border : at_left[4:0];
            last  <= {17'b0, to_border} >= at_left;
          end
          extent <= kind == KIND_TAIL ? {1'b0, at_length} : end_position - 25'd12;
        end
        // The address goes to memory and the note to read_return, each when its side is ready.
        ISSUE: begin
          if (!sent && !ar_valid) begin
            ar_valid          <= 1'b1;
            ar_address        <= {at_word, 3'b0};
            ar_beats_less_one <= beats[3:0] - 4'd1;
            sent              <= 1'b1;
          end
          if (asked_ready) told <= 1'b1;
          if (sent && (told || asked_ready)) state <= NEXT;
        end
        NEXT: begin
          if (kind == KIND_END || (kind == KIND_BODY && last)) active <= active & ~current_one;
          state <= PICK;
        end
        default: state <= PICK;
      endcase
    end
  end
endmodule
